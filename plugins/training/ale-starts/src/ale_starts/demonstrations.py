"""Whole ways through a task, and where they come from: who the experts of a run are."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from attrs import field, frozen

from ale.errors import InputError, Problem
from ale.protocols import Expert
from ale.runs import SUCCESS, RunReader
from ale.types import Episode, Task
from ale_starts.experts import Check, EpisodeExpert, Exchange, SolutionExpert, exchanges
from ale_starts.names import DEMONSTRATION

Prefer = Literal["shortest", "newest"]


class Demonstration(Protocol):
    """How a task is done, known to its end."""

    @property
    def turns(self) -> int:
        """K, at least 1."""
        ...

    @property
    def tag(self) -> str:
        """See `ale_forks.Place.tag`."""
        ...

    def expert(self, upto: int | None) -> Expert:
        """One that says the first `upto` turns; None: all."""
        ...


@frozen(kw_only=True)
class SolutionDemonstration:
    """A reference solution: one turn per command, and one that ends the episode."""

    commands: Sequence[str]
    tag: str = ""

    @property
    def turns(self) -> int:
        """Commands and the closing turn."""
        return len(self.commands) + 1

    def expert(self, upto: int | None) -> Expert:
        """See `Demonstration`."""
        return SolutionExpert(commands=self.commands, upto=upto)


@frozen(kw_only=True)
class EpisodeDemonstration:
    """An episode that succeeded."""

    exchanges: Sequence[Exchange] = field(repr=False)
    check: Check
    tag: str = ""

    @property
    def turns(self) -> int:
        """Those of the episode."""
        return len(self.exchanges)

    def expert(self, upto: int | None) -> Expert:
        """See `Demonstration`."""
        turns = self.turns if upto is None else upto
        return EpisodeExpert(exchanges=self.exchanges, upto=turns, check=self.check)


def digest(said: Sequence[Exchange]) -> str:
    """Six hexadecimal digits by what is said, whenever and wherever that was."""
    parts = [
        repr((e.answer.content, [(c.name, c.arguments) for c in e.answer.tool_calls])) for e in said
    ]
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=3).hexdigest()


def demonstration_of(episode: Episode, check: Check, *, tagged: bool) -> EpisodeDemonstration:
    """What an episode demonstrates.

    Args:
        tagged: it may be followed by another one for the same task in the same run.
    """
    said = exchanges(episode.trajectory.turns)
    return EpisodeDemonstration(exchanges=said, check=check, tag=digest(said) if tagged else "")


def shows_how(episode: Episode) -> bool:
    """Every criterion held, after at least one turn."""
    return episode.reward == SUCCESS and len(episode.trajectory.turns) > 0


def better(new: Demonstration, old: Demonstration | None, prefer: Prefer) -> bool:
    """Should `new`, which came later, take the place of `old`?"""
    return old is None or prefer == "newest" or new.turns < old.turns


class Experts(Protocol):
    """Who knows how the tasks of a run are done."""

    def at_first(self, task: Task) -> Demonstration | None:
        """Before a rollout of this run is known; None where nobody knows."""
        ...

    def see(self, episode: Episode) -> None:
        """Look at a graded training episode of this run."""
        ...

    def learned(self, task_id: str) -> Demonstration | None:
        """What this run's rollouts have shown so far, if that counts here."""
        ...


@frozen
class Solutions:
    """The tasks' own reference solutions."""

    def at_first(self, task: Task) -> Demonstration | None:
        """Its solution."""
        return None if task.solution is None else SolutionDemonstration(commands=task.solution)

    def see(self, episode: Episode) -> None:
        """Nothing: solutions stay."""

    def learned(self, task_id: str) -> Demonstration | None:
        """None."""
        return None


@frozen
class Stored:
    """Successful episodes of a stored run, by task."""

    found: Mapping[str, Demonstration] = field(repr=False)

    def at_first(self, task: Task) -> Demonstration | None:
        """The episode that was preferred among the task's."""
        return self.found.get(task.id)

    def see(self, episode: Episode) -> None:
        """Nothing: the stored run is over."""

    def learned(self, task_id: str) -> Demonstration | None:
        """None."""
        return None


def stored(reader: RunReader, prefer: Prefer, check: Check) -> Stored:
    """The successes of a stored run, one per task; one episode is in memory at a time.

    Raises:
        InputError: it has none.
    """
    found = chosen(reader.episodes, prefer, check)
    if not found:
        message = "the run has no successful episode that could be an expert"
        file = str(reader.episodes.path)
        raise InputError([Problem(message=message, file=file, path="starts.expert_run")])
    return Stored(found)


def chosen(
    episodes: Iterable[Episode], prefer: Prefer, check: Check
) -> Mapping[str, Demonstration]:
    """The preferred success of each task; later ones are newer."""
    found: dict[str, Demonstration] = {}
    for episode in episodes:
        if shows_how(episode):
            new = demonstration_of(episode, check, tagged=False)
            if better(new, found.get(episode.task_id), prefer):
                found[episode.task_id] = new
    return found


class Own:
    """The policy's own successes: episodes in which it had at least one turn.

    Args:
        before: who is asked until there is one.
    """

    def __init__(self, before: Experts | None, prefer: Prefer, check: Check) -> None:
        self._before = before
        self._prefer: Prefer = prefer
        self._check: Check = check
        self._best: dict[str, Demonstration] = {}

    def at_first(self, task: Task) -> Demonstration | None:
        """Of the one who is asked before."""
        return None if self._before is None else self._before.at_first(task)

    def see(self, episode: Episode) -> None:
        """Keep a success where it is preferred to the one that is kept."""
        sampled = any(not turn.completion.forced for turn in episode.trajectory.turns)
        if not sampled or episode.start == DEMONSTRATION or not shows_how(episode):
            return
        new = demonstration_of(episode, self._check, tagged=True)
        if better(new, self._best.get(episode.task_id), self._prefer):
            self._best[episode.task_id] = new

    def learned(self, task_id: str) -> Demonstration | None:
        """The one that is kept."""
        return self._best.get(task_id)
