"""Chunkers whose boundaries lie between turns."""

from collections.abc import Callable, Mapping, Sequence

from ale.types import Chunk, Span, Trajectory, Turn, call_count, whole_turn
from ale_chunkers.options import AttemptOptions, InteractionOptions, PhaseOptions


def _joined(
    trajectory: Trajectory, ends: Callable[[Turn], str | None], *, rest: str
) -> tuple[Chunk, ...]:
    """A chunk up to each turn that ends one, and one for what follows the last of these turns.

    Args:
        ends: the kind of the chunk that a turn ends; None if it ends none.
        rest: kind of what follows.
    """
    chunks: list[Chunk] = []
    pending: list[Span] = []
    for index, turn in enumerate(trajectory.turns):
        pending.append(whole_turn(index, turn))
        kind = ends(turn)
        if kind is not None:
            chunks.append(Chunk(index=len(chunks), kind=kind, spans=tuple(pending)))
            pending = []
    if pending:
        chunks.append(Chunk(index=len(chunks), kind=rest, spans=tuple(pending)))
    return tuple(chunks)


class MessageChunker:
    """One chunk per assistant message, its calls and their observations included."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """As many chunks as turns."""
        return _joined(trajectory, lambda turn: "message", rest="message")


class InteractionChunker:
    """From one interaction with the environment to the next: reasoning, then the calls that act.

    A chunk ends with a turn that calls a tool, and at the end of the trajectory; nothing else ends
    it. It does not matter whether the observation is empty or missing, so two turns that act never
    share a chunk. A turn that calls nothing is reasoning before the next act and joins its chunk
    (`turns_without_calls: join`) or, if the message after such a turn counts as an answer of the
    environment, is its own chunk (``own``).

    Source: arXiv:2512.24873, 3.2.4.2.
    """

    def __init__(self, options: InteractionOptions) -> None:
        self._joins = options.turns_without_calls == "join"

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """One chunk per turn that acts, and one for what follows the last of these turns."""
        return _joined(trajectory, self._end, rest="interaction")

    def _end(self, turn: Turn) -> str | None:
        return "interaction" if call_count(turn) or not self._joins else None


class PhaseChunker:
    """One chunk per phase: all turns up to one with an observation from a phase-ending tool.

    If a turn has several such observations, the first determines the kind. What follows the last
    phase is a chunk, too.

    Args:
        tools: tools whose observations end a phase, each with the kind of the phase's chunk.
        rest: kind of what follows the last phase, and of a trajectory without phases.
    """

    def __init__(self, tools: Mapping[str, str], *, rest: str) -> None:
        self._tools = tools
        self._rest = rest

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """One chunk per turn that ends a phase, and one for what follows the last."""
        return _joined(trajectory, self._end, rest=self._rest)

    def _end(self, turn: Turn) -> str | None:
        return next((self._tools[o.tool] for o in turn.observations if o.tool in self._tools), None)


def phase_chunker(options: PhaseOptions) -> PhaseChunker:
    """``phase``."""
    return PhaseChunker({tool: tool for tool in options.tools}, rest="unfinished")


class AttemptChunker(PhaseChunker):
    """One chunk per attempt: all turns up to the one whose observation judges it.

    What follows the last attempt is one more chunk, of kind ``untested``; so is a trajectory in
    which nothing was tested.
    """

    def __init__(self, options: AttemptOptions) -> None:
        super().__init__({options.tool: "attempt"}, rest="untested")


class TrajectoryChunker:
    """The whole trajectory as one action."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """One chunk; none for a trajectory without turns."""
        return _joined(trajectory, lambda turn: None, rest="trajectory")
