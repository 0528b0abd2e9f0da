"""Chunks: the steps of the decision process, as explicit ranges, never inferred from masks."""

from ale.types._record import record
from ale.types.trajectory import Turn

Range = tuple[int, int]
"""A half-open range: start, stop."""


@record
class Span:
    """A part of one turn.

    Over all spans of all chunks of a trajectory, in order, the ranges of each turn follow one
    another without gap or overlap: every character, every call and every token is in one chunk.
    """

    turn: int
    text: Range
    """Characters of the completion's content."""
    calls: Range
    """Tool calls, each together with its observation."""
    tokens: Range | None = None
    """Generated tokens (``output_ids``); None if none were recorded, or if the boundary does not
    fall between two of them."""


@record
class Chunk:
    """One action of the chunked decision process (arXiv:2512.24873, 3.2.4.2)."""

    index: int
    """0-based position in the trajectory."""
    kind: str
    """The rule that produced the chunk: ``interaction``, ``message``, ``tool-call``, ..."""
    spans: tuple[Span, ...]


def call_count(turn: Turn) -> int:
    """Number of calls in a turn.

    An agent that parses calls out of the text may record their observations alone; those count.
    """
    return max(len(turn.completion.message.tool_calls), len(turn.observations))


def whole_turn(index: int, turn: Turn) -> Span:
    """The span that covers all of turn number `index`, with its tokens where they are recorded."""
    trace = turn.completion.tokens
    return Span(
        turn=index,
        text=(0, len(turn.completion.message.content)),
        calls=(0, call_count(turn)),
        tokens=None if trace is None else (0, len(trace.output_ids)),
    )
