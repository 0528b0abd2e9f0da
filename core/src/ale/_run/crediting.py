"""Cut stored episodes into chunks and give each its credit; from disk, group by group."""

import math
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale._store import RunReader
from ale._store.index import Index
from ale.errors import PluginError
from ale.protocols import Chunker, CreditScheme
from ale.types import Credit, CreditedEpisode, CreditedGroup, Group, Rollout, replace


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
            rollouts = tuple(
                Rollout(episode=episode, chunks=tuple(self.chunker.split(episode.trajectory)))
                for episode in episodes
            )
            yield self.assign(Group(task_id=of, rollouts=rollouts, batch=statistics))

    def assign(self, group: Group) -> CreditedGroup:
        """One group's credits, checked."""
        given = self.scheme.assign(group)
        check_credits(group, given, self.scheme_name)
        named = tuple(replace(credit, scheme=self.scheme_name) for credit in given)
        return CreditedGroup(group=group, credits=named)

    def rows(self, credited: CreditedGroup) -> Iterator[CreditedEpisode]:
        """The lines of a credits file for one group."""
        pairs = zip(credited.group.rollouts, credited.credits, strict=True)
        for rollout, credit in pairs:
            yield CreditedEpisode(
                episode_id=rollout.episode.id,
                task_id=rollout.episode.task_id,
                step=rollout.episode.step,
                chunker=self.chunker_name,
                chunks=rollout.chunks,
                credit=credit,
            )


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
