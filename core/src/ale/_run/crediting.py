"""Cut stored episodes into chunks and give each its credit; from disk, group by group."""

import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from ale._store import RunReader
from ale._store.codec import fault_of
from ale._store.index import Index
from ale.errors import AleError, PluginError
from ale.protocols import Chunker, CreditScheme
from ale.types import (
    Chunk,
    Credit,
    CreditedEpisode,
    CreditedGroup,
    Episode,
    Group,
    Rollout,
    replace,
)


@frozen(kw_only=True)
class Crediting:
    """A chunker and a scheme, with the names they have in the config."""

    chunker: Chunker
    chunker_name: str
    scheme: CreditScheme
    scheme_name: str

    def groups(
        self, run: RunReader, index: Index, step: int, task_id: str | None = None
    ) -> Iterator[CreditedGroup]:
        """Every group of a step (or one task's) with its credits; one group in memory at a time.

        Raises:
            ChunkError: a trajectory lacks what the chunker needs.
            PluginError: the scheme broke its contract.
        """
        statistics = index.statistics(step)
        for of, offsets in index.groups(step):
            if task_id not in (None, of):
                continue
            episodes = [run.episodes.at(offset) for offset in offsets]
            rollouts = tuple(self.cut(episode) for episode in episodes)
            yield self.assign(Group(task_id=of, rollouts=rollouts, batch=statistics))

    def cut(self, episode: Episode) -> Rollout:
        """One episode and its chunks."""
        with _named(f"chunker '{self.chunker_name}'", episode.id):
            return Rollout(episode=episode, chunks=tuple(self.chunker.split(episode.trajectory)))

    def assign(self, group: Group) -> CreditedGroup:
        """One group's credits, checked."""
        creditable = replace(group, rollouts=tuple(map(_creditable, group.rollouts)))
        with _named(f"credit scheme '{self.scheme_name}'", f"task {group.task_id}"):
            given = self.scheme.assign(creditable)
            check_credits(creditable, given, self.scheme_name)
        named = tuple(
            replace(_for_all_chunks(credit, rollout), scheme=self.scheme_name)
            for credit, rollout in zip(given, group.rollouts, strict=True)
        )
        return CreditedGroup(group=group, credits=named)

    def rows(self, credited: CreditedGroup) -> Iterator[CreditedEpisode]:
        """The lines of a credits file for one group.

        Raises:
            PluginError: a chunk or a credit is no valid record.
        """
        pairs = zip(credited.group.rollouts, credited.credits, strict=True)
        for rollout, credit in pairs:
            row = CreditedEpisode(
                episode_id=rollout.episode.id,
                task_id=rollout.episode.task_id,
                step=rollout.episode.step,
                chunker=self.chunker_name,
                chunks=rollout.chunks,
                credit=credit,
            )
            if fault := fault_of(row):
                raise PluginError(
                    f"chunker '{self.chunker_name}' or credit scheme '{self.scheme_name}' gave "
                    f"what can't be stored for {rollout.episode.id}: {fault}"
                )
            yield row


def _is_credited(chunk: Chunk, episode: Episode) -> bool:
    turns = [episode.trajectory.turns[span.turn] for span in chunk.spans]
    return not turns or any(turn.credited for turn in turns)


def _creditable(rollout: Rollout) -> Rollout:
    """Without the chunks that consist of turns with `credited` unset; the rest is renumbered."""
    episode = rollout.episode
    if all(turn.credited for turn in episode.trajectory.turns):
        return rollout
    chunks = [chunk for chunk in rollout.chunks if _is_credited(chunk, episode)]
    return replace(rollout, chunks=tuple(replace(chunk, index=i) for i, chunk in enumerate(chunks)))


def _for_all_chunks(credit: Credit, rollout: Rollout) -> Credit:
    """The credit of the creditable chunks, with zeros for the others."""
    credited = [_is_credited(chunk, rollout.episode) for chunk in rollout.chunks]
    if all(credited):
        return credit

    def spread(numbers: Sequence[float]) -> tuple[float, ...]:
        left = iter(numbers)
        return tuple(next(left) if each else 0.0 for each in credited)

    return replace(
        credit,
        rewards=spread(credit.rewards),
        returns=spread(credit.returns),
        weights=spread(credit.weights),
    )


@contextmanager
def _named(part: str, at: str) -> Iterator[None]:
    """Say which part failed, and on what; the project's own errors say so themselves."""
    try:
        yield
    except AleError:
        raise
    except Exception as error:
        told = "".join(traceback.format_exception(error))
        raise PluginError(f"{part} failed on {at}:\n{told}") from error


def check_credits(group: Group, credits: Sequence[Credit], scheme: str) -> None:
    """Hold a scheme to its contract.

    Raises:
        PluginError: another number of credits or entries than there are rollouts and chunks, or
            a number that is not finite.
    """
    expected = [(rollout.episode.id, len(rollout.chunks)) for rollout in group.rollouts]
    given = [(credit.episode_id, len(credit.weights)) for credit in credits]
    if expected != given:
        raise PluginError(f"credit scheme '{scheme}' gave {given} for {expected}")
    for credit in credits:
        numbers = (*credit.rewards, *credit.returns, *credit.weights)
        if len(numbers) != 3 * len(credit.weights) or not all(map(math.isfinite, numbers)):
            raise PluginError(f"credit scheme '{scheme}' gave no finite numbers: {credit}")
