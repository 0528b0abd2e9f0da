"""Demonstrations: complete action sequences for tasks, and the sources of experts in a run."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import field, frozen

from ale.errors import InputError
from ale.protocols import Expert
from ale.runs import SUCCESS, RunReader
from ale.types import Episode, Task
from ale_starts.experts import Check, EpisodeExpert, Exchange, SolutionExpert, exchanges

DEMONSTRATION = "demo"
"""Name of a start in which the expert takes every turn."""
Prefer = Literal["shortest", "newest"]


@frozen(kw_only=True)
class SolutionDemonstration:
    """A reference solution: one turn per command, and one that ends the episode."""

    commands: Sequence[str]
    tag: str = ""
    """See `ale_figures.forks.Place.tag`."""

    @property
    def turns(self) -> int:
        """K: commands and the closing turn."""
        return len(self.commands) + 1

    def expert(self, upto: int | None) -> Expert:
        """An expert that answers the first `upto` turns; None: all."""
        return SolutionExpert(commands=self.commands, upto=upto)


@frozen(kw_only=True)
class EpisodeDemonstration:
    """An episode that succeeded."""

    exchanges: Sequence[Exchange] = field(repr=False)
    check: Check
    tag: str = ""

    @property
    def turns(self) -> int:
        """K: turns of the episode, at least 1."""
        return len(self.exchanges)

    def expert(self, upto: int | None) -> Expert:
        """An expert that answers the first `upto` turns; None: all."""
        turns = self.turns if upto is None else upto
        return EpisodeExpert(exchanges=self.exchanges, upto=turns, check=self.check)


Demonstration = SolutionDemonstration | EpisodeDemonstration
"""A complete sequence of turns that solves a task."""


def digest(found: Sequence[Exchange]) -> str:
    """Six hexadecimal digits of a hash of the answers alone."""
    parts = [
        repr((e.answer.content, [(c.name, c.arguments) for c in e.answer.tool_calls]))
        for e in found
    ]
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=3).hexdigest()


def demonstration_of(episode: Episode, check: Check, *, tagged: bool) -> EpisodeDemonstration:
    """The demonstration in an episode.

    Args:
        tagged: a later demonstration of the same task may replace this one in the same run.
    """
    found = exchanges(episode.trajectory.turns)
    return EpisodeDemonstration(exchanges=found, check=check, tag=digest(found) if tagged else "")


def is_success(episode: Episode) -> bool:
    """Success after at least one turn."""
    return episode.reward == SUCCESS and len(episode.trajectory.turns) > 0


def better(new: Demonstration, old: Demonstration | None, prefer: Prefer) -> bool:
    """Should `new`, which is newer, replace `old`?"""
    return old is None or prefer == "newest" or new.turns < old.turns


class Experts:
    """Source of demonstrations for the tasks of a run."""

    def initial(self, task: Task) -> Demonstration | None:
        """The demonstration before any rollout of this run; None if there is none."""
        raise NotImplementedError

    def add_episode(self, episode: Episode) -> None:
        """Take a graded training episode of this run into account, if own successes are used."""

    def own_success(self, task_id: str) -> Demonstration | None:
        """The best own success of this run so far, if own successes are used."""
        return None


@frozen
class ReferenceSolutions(Experts):
    """The tasks' own reference solutions."""

    def initial(self, task: Task) -> Demonstration | None:
        """The task's solution, where its commands are all of it."""
        if task.solution is None or "solution_files" in task.metadata:
            return None
        return SolutionDemonstration(commands=task.solution)


@frozen
class StoredSuccesses(Experts):
    """Successful episodes of a stored run, by task."""

    found: Mapping[str, Demonstration] = field(repr=False)

    def initial(self, task: Task) -> Demonstration | None:
        """The preferred episode of the task."""
        return self.found.get(task.id)


def stored_successes(reader: RunReader, prefer: Prefer, check: Check) -> StoredSuccesses:
    """The successes of a stored run, one per task; reads one episode at a time.

    Raises:
        InputError: the run has no success.
    """
    found: dict[str, Demonstration] = {}
    for episode in filter(is_success, reader.episodes):
        new = demonstration_of(episode, check, tagged=False)
        if better(new, found.get(episode.task_id), prefer):
            found[episode.task_id] = new
    if not found:
        message = "the run has no successful episode that could be an expert"
        file = str(reader.episodes.path)
        raise InputError.of(message, file=file, path="starts.expert_run")
    return StoredSuccesses(found)


@frozen(eq=False)
class OwnSuccesses(Experts):
    """The policy's own successes: episodes in which it had at least one turn."""

    _fallback: Experts | None
    """Used until the policy has succeeded."""
    _prefer: Prefer
    _check: Check
    _best: dict[str, Demonstration] = field(factory=dict, init=False)

    def initial(self, task: Task) -> Demonstration | None:
        """The fallback's demonstration."""
        return None if self._fallback is None else self._fallback.initial(task)

    def add_episode(self, episode: Episode) -> None:
        """Store a success if it is preferred to the stored one."""
        sampled = any(not turn.completion.forced for turn in episode.trajectory.turns)
        if not sampled or episode.start == DEMONSTRATION or not is_success(episode):
            return
        new = demonstration_of(episode, self._check, tagged=True)
        if better(new, self._best.get(episode.task_id), self._prefer):
            self._best[episode.task_id] = new

    def own_success(self, task_id: str) -> Demonstration | None:
        """The stored success."""
        return self._best.get(task_id)
