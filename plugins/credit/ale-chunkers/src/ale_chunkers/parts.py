"""Chunkers that also cut inside a turn."""

from collections.abc import Callable, Iterator, Sequence

from ale.types import Chunk, Span, Trajectory, Turn, call_count, whole_turn
from ale_chunkers.micro_steps import MICRO_STEP, pieces
from ale_chunkers.spans import Cut, cut_turn

Part = tuple[str, Span]
"""A chunk's kind, and its only span."""


def _chunks(
    trajectory: Trajectory, parts: Callable[[int, Turn], Iterator[Part]]
) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    for index, turn in enumerate(trajectory.turns):
        for kind, span in parts(index, turn):
            chunks.append(Chunk(index=len(chunks), kind=kind, spans=(span,)))
    return tuple(chunks)


class ToolCallChunker:
    """One chunk per tool call, together with its observation.

    The text before the calls is the reasoning that led to the first call and belongs to its chunk.
    A turn whose calls are in its text is one chunk. So is a turn without calls, of kind
    ``message``.
    """

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """As many chunks as calls and turns without calls."""
        return _chunks(trajectory, self._parts)

    def _parts(self, index: int, turn: Turn) -> Iterator[Part]:
        calls = len(turn.completion.message.tool_calls)
        if calls < 2:
            yield "tool-call" if call_count(turn) else "message", whole_turn(index, turn)
            return
        end = len(turn.completion.message.content)
        cuts = [*((end, call) for call in range(1, calls)), (end, call_count(turn))]
        for span in cut_turn(index, turn, cuts):
            yield "tool-call", span


class TagChunker:
    """Assistant messages, cut at tags inside them, such as ``<micro-step>``.

    The calls of a turn belong to its last piece. See `tagged` for tags that do not match.

    Args:
        tags: names of tags; a chunk's kind is the name of its tag, or ``message``.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self._tags = tags

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """At least one chunk per turn."""
        return _chunks(trajectory, self._parts)

    def _parts(self, index: int, turn: Turn) -> Iterator[Part]:
        found = pieces(turn.completion.message.content, self._tags)
        if len(found) == 1:
            yield found[0][0], whole_turn(index, turn)
            return
        cuts: list[Cut] = [(stop, 0) for _, stop in found]
        cuts[-1] = (cuts[-1][0], call_count(turn))
        for (kind, _), span in zip(found, cut_turn(index, turn, cuts), strict=True):
            yield kind, span


def micro_step_chunker() -> TagChunker:
    """``micro-step``."""
    return TagChunker(MICRO_STEP)


def step_tag_chunker() -> TagChunker:
    """``step-tags``."""
    return TagChunker(("step", "answer"))


class AleLiteChunker:
    """Each message's text, cut at its micro-steps, then each of its calls with its observation.

    Blank text before a call is not a message and belongs to that call's chunk. If calls are in the
    text, its last piece is a chunk of kind ``tool-call``, together with their observations. A turn
    that has neither text nor calls is a chunk of kind ``message``.
    """

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """At least one chunk per turn."""
        return _chunks(trajectory, self._parts)

    def _parts(self, index: int, turn: Turn) -> Iterator[Part]:
        text = turn.completion.message.content
        calls = len(turn.completion.message.tool_calls)
        found = [] if calls and (not text or text.isspace()) else pieces(text)
        kinds = [kind for kind, _ in found] + ["tool-call"] * calls
        if call_count(turn) > 0:
            kinds[-1] = "tool-call"
        if len(kinds) == 1:
            yield kinds[0], whole_turn(index, turn)
            return
        cuts: list[Cut] = [(stop, 0) for _, stop in found]
        cuts += [(len(text), call + 1) for call in range(calls)]
        cuts[-1] = (len(text), call_count(turn))
        yield from zip(kinds, cut_turn(index, turn, cuts), strict=True)
