"""Splits an episode into contexts, token for token. Pure.

Nothing is rendered or tokenised again, and no token's chunk is guessed.
"""

from collections.abc import Sequence

from attrs import define, field

from ale.types import Chunk, Rollout, Trajectory

NO_CHUNK = -1


@define
class Context:
    """A conversation without a break: its first prompt, and the tokens after it.

    The lists have one entry per token after the first prompt.
    """

    prompt_ids: tuple[int, ...]
    ids: list[int] = field(factory=list)
    mask: list[int] = field(factory=list)
    """1 for sampled tokens; 0 for observations and forced tokens."""
    logprobs: list[float] = field(factory=list)
    chunks: list[int] = field(factory=list)
    """Chunk number of each sampled token, else `NO_CHUNK`."""

    def continues(self, prompt_ids: tuple[int, ...]) -> bool:
        """Does this prompt extend the context?"""
        whole = (*self.prompt_ids, *self.ids)
        return prompt_ids[: len(whole)] == whole

    def append_context(self, ids: Sequence[int]) -> None:
        """Append tokens that were not sampled."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.chunks += [NO_CHUNK] * len(ids)

    def append_sampled(
        self, ids: Sequence[int], logprobs: Sequence[float], chunks: Sequence[int]
    ) -> None:
        """Append sampled tokens."""
        self.ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += logprobs
        self.chunks += chunks

    @property
    def length(self) -> int:
        """Tokens, the first prompt's included."""
        return len(self.prompt_ids) + len(self.ids)


def contexts_of(rollout: Rollout) -> list[Context]:
    """The contexts of an episode: one, and one more wherever a prompt does not extend the last.

    Turns without recorded tokens are left out.
    """
    trajectory = rollout.episode.trajectory
    chunks = _chunks_by_turn(trajectory, rollout.chunks)
    found: list[Context] = []
    for number, turn in enumerate(trajectory.turns):
        trace = turn.completion.tokens
        if trace is None or not trace.output_ids:
            continue
        if found and found[-1].continues(trace.prompt_ids):
            found[-1].append_context(trace.prompt_ids[found[-1].length :])
        else:
            found.append(Context(trace.prompt_ids))
        if turn.completion.forced:
            found[-1].append_context(trace.output_ids)
        else:
            found[-1].append_sampled(trace.output_ids, trace.logprobs, chunks[number])
    return found


def _chunks_by_turn(trajectory: Trajectory, chunks: Sequence[Chunk]) -> list[list[int]]:
    """For each turn the chunk of each of its tokens."""
    found = []
    for turn in trajectory.turns:
        trace = turn.completion.tokens
        found.append([NO_CHUNK] * (0 if trace is None else len(trace.output_ids)))
    for chunk in chunks:
        for span in chunk.spans:
            if span.tokens is not None:
                start, stop = span.tokens
                found[span.turn][start:stop] = [chunk.index] * (stop - start)
    return found
