"""Counts of a run's episodes, by task."""

import math
from collections.abc import Mapping

from attrs import define, field

from ale.errors import InputError, Problem
from ale.runs import SUCCESS, RunReader
from ale.types import Episode, Split


@define(kw_only=True)
class Attempts:
    """Those at one task."""

    rewards: list[float] = field(factory=list)
    broken: int = 0
    seconds: float = 0.0
    """Wall clock of all of them together, broken ones too."""
    cause: str = ""
    """Of the last that broke."""

    @property
    def n(self) -> int:
        """Attempts that were graded."""
        return len(self.rewards)

    @property
    def passed(self) -> int:
        """Of these, those with a reward of 1."""
        return sum(reward == SUCCESS for reward in self.rewards)

    @property
    def mean(self) -> float | None:
        """Reward, over those that were graded."""
        return math.fsum(self.rewards) / self.n if self.rewards else None

    def add(self, episode: Episode) -> None:
        """Count one more."""
        self.seconds += math.fsum(episode.seconds.values())
        if episode.reward is not None:
            self.rewards.append(episode.reward)
            return
        self.broken += 1
        if episode.failure is not None:
            self.cause = f"{episode.failure.stage}: {episode.failure.message}"


def tally(reader: RunReader, split: Split, step: int | None) -> Mapping[str, Attempts]:
    """Attempts from the tasks' own beginnings, in the order of the tasks' names.

    Args:
        step: of training; None takes all of them.

    Raises:
        InputError: there are none.
    """
    found: dict[str, Attempts] = {}
    for episode in reader.episodes:
        if episode.split == split and episode.start == "" and step in (None, episode.step):
            found.setdefault(episode.task_id, Attempts()).add(episode)
    if not found:
        which = "" if step is None else f" in step {step}"
        message = f"no episode of the split '{split}'{which}"
        raise InputError([Problem(message=message, file=str(reader.episodes.path))])
    return dict(sorted(found.items()))
