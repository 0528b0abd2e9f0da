"""The finest cut: every generated token is an action of its own."""

from collections.abc import Iterator, Sequence

from ale.errors import ChunkError
from ale.types import Chunk, Range, Span, Trajectory, Turn, call_count, whole_turn
from ale_chunkers.spans import checked_offsets


class TokenChunker:
    """One chunk per generated token.

    If text offsets are recorded, a token gets the characters that start in it; otherwise the whole
    text belongs to the turn's last token. Calls always do, as they are made once the last token is
    there. A turn without tokens is one chunk, whose token range is empty.
    """

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """As many chunks as generated tokens, and one for each turn that has none.

        Raises:
            ChunkError: a turn has no token trace, or its text offsets contradict its tokens.
        """
        spans = (
            span
            for index, turn in enumerate(trajectory.turns)
            for span in _token_spans(index, turn)
        )
        return tuple(
            Chunk(index=index, kind="token", spans=(span,)) for index, span in enumerate(spans)
        )


def _token_spans(index: int, turn: Turn) -> Iterator[Span]:
    trace = turn.completion.tokens
    if trace is None:
        raise ChunkError(
            f"turn {index} has no token ids, which the chunker 'token' needs: sample with a model "
            "that records them, or choose another chunker, such as 'interaction'"
        )
    if not trace.output_ids:
        yield whole_turn(index, turn)
        return
    texts = _texts(turn, len(trace.output_ids), checked_offsets(index, trace))
    last = len(texts) - 1
    calls = call_count(turn)
    for token, text in enumerate(texts):
        made = (0, calls) if token == last else (0, 0)
        yield Span(turn=index, text=text, calls=made, tokens=(token, token + 1))


def _texts(turn: Turn, n_tokens: int, offsets: tuple[int, ...] | None) -> Sequence[Range]:
    """The characters of each token: from where it starts to where the next one starts."""
    end = len(turn.completion.message.content)
    if offsets is None:
        return [(0, 0)] * (n_tokens - 1) + [(0, end)]
    starts = [0, *(min(offset, end) for offset in offsets[1:])]
    return list(zip(starts, [*starts[1:], end], strict=True))
