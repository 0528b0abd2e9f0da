"""Chunks: the steps of the decision process, as explicit ranges, never inferred from masks."""

from ale.types._record import record

Range = tuple[int, int]
"""Half-open: start, stop."""


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
    """Generated tokens (``output_ids``); None where none were recorded, or where the boundary
    does not fall between two of them."""


@record
class Chunk:
    """One action of the chunked decision process (arXiv:2512.24873, 3.2.4.2)."""

    index: int
    """0-based position in the trajectory."""
    kind: str
    """The rule that produced it: ``interaction``, ``message``, ``tool-call``, ..."""
    spans: tuple[Span, ...]
