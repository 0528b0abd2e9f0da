"""Chunks: the steps of the decision process, as explicit ranges, never inferred from masks."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from ale.types._record import record
from ale.types.message import TokenTrace
from ale.types.trajectory import Trajectory, Turn

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


def partition_problem(trajectory: Trajectory, chunks: Sequence[Chunk]) -> str | None:
    """Why chunks are no partition of a trajectory (see `Span`), in one line; None if they are.

    Tokens may be unknown (None) only in spans that are a part of their turn.
    """
    return next(_partition_problems(trajectory, chunks), None)


def _partition_problems(trajectory: Trajectory, chunks: Sequence[Chunk]) -> Iterator[str]:
    spans = [span for chunk in chunks for span in chunk.spans]
    if any(one.turn > other.turn for one, other in pairwise(spans)):
        yield "spans are not in the order of the turns"
    by_turn = {turn: list(group) for turn, group in groupby(spans, lambda span: span.turn)}
    if list(by_turn) != list(range(len(trajectory.turns))):
        yield "not every turn is covered"
        return  # or there are spans of turns that do not exist
    for index, turn in enumerate(trajectory.turns):
        found, content = by_turn[index], turn.completion.message.content
        yield from _gaps((span.text for span in found), len(content), f"turn {index}: text")
        yield from _gaps((span.calls for span in found), call_count(turn), f"turn {index}: calls")
        yield from _token_problems(found, turn.completion.tokens, f"turn {index}: tokens")


def _gaps(ranges: Iterable[Range], stop: int, what: str) -> Iterator[str]:
    position = 0
    for start, end in ranges:
        if start != position:
            yield f"{what}: a range starts at {start}, not at {position}"
        if end < start:
            yield f"{what}: a range ends before it starts"
        position = end
    if position != stop:
        yield f"{what}: covered up to {position} of {stop}"


def _token_problems(spans: Sequence[Span], trace: TokenTrace | None, what: str) -> Iterator[str]:
    known = [span.tokens for span in spans if span.tokens is not None]
    if trace is None:
        if known:
            yield f"{what}: none were recorded"
        return
    if len(known) == len(spans):
        yield from _gaps(known, len(trace.output_ids), what)
        return
    if len(spans) == 1:
        yield f"{what}: unknown in a span that is the whole turn"
    edges = [0, *(edge for each in known for edge in each), len(trace.output_ids)]
    if edges != sorted(edges):
        yield f"{what}: out of order"
