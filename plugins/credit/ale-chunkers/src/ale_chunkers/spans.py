"""Cut one turn into spans, and find the tokens of each span.

A turn is taken in the order in which the model wrote it: the characters of its text, then its
calls. A cut is a position in that order, `(characters, calls)`, so any cuts give a partition by
construction.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ale.errors import ChunkError
from ale.types import Range, Span, TokenTrace, Turn

Cut = tuple[int, int]
"""Where a piece of a turn ends: characters of the text and calls that lie before it."""


def cut_turn(index: int, turn: Turn, cuts: Sequence[Cut]) -> Iterator[Span]:
    """The spans of turn number `index` between the given cuts.

    Args:
        cuts: where each piece ends, in order; the last is the end of the turn.

    Raises:
        ChunkError: the text offsets of the turn's tokens contradict its tokens.
    """
    text = calls = 0
    for (text_stop, calls_stop), tokens in zip(cuts, _token_ranges(index, turn, cuts), strict=True):
        yield Span(turn=index, text=(text, text_stop), calls=(calls, calls_stop), tokens=tokens)
        text, calls = text_stop, calls_stop


def checked_offsets(index: int, trace: TokenTrace) -> tuple[int, ...] | None:
    """The text offsets of the trace, one per token; None where they were not recorded.

    Raises:
        ChunkError: there is not one offset per token, or they are not in ascending order.
    """
    offsets = trace.text_offsets
    if offsets is None:
        return None
    if len(offsets) != len(trace.output_ids):
        raise ChunkError(
            f"turn {index}: text_offsets has {len(offsets)} entries for "
            f"{len(trace.output_ids)} tokens"
        )
    if list(offsets) != sorted(offsets):
        raise ChunkError(f"turn {index}: text_offsets are not in ascending order")
    return offsets


def _token_ranges(index: int, turn: Turn, cuts: Sequence[Cut]) -> Sequence[Range | None]:
    """The token ranges between the cuts; None next to a cut that lies inside a token."""
    trace = turn.completion.tokens
    if trace is None:
        return [None] * len(cuts)
    offsets = checked_offsets(index, trace)
    n_characters = len(turn.completion.message.content)
    inner = [_token_at(offsets, cut, n_characters) for cut in cuts[:-1]]
    edges = [0, *inner, len(trace.output_ids)]
    return [
        None if start is None or stop is None else (start, stop) for start, stop in pairwise(edges)
    ]


def _token_at(offsets: Sequence[int] | None, cut: Cut, n_characters: int) -> int | None:
    """The first token after a cut if the cut falls between two tokens, else None.

    The end of the text always falls between two tokens: what starts there or later (a call's
    tokens, the end-of-turn token) is not text. Where one call ends and the next starts is not
    recorded.
    """
    text, calls = cut
    if offsets is None or calls > 0:
        return None
    token = bisect_left(offsets, text)
    if text == n_characters or (token < len(offsets) and offsets[token] == text):
        return token
    return None
