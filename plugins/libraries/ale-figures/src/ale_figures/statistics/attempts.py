"""Count a run's attempts by task."""

import bisect
import math
from collections.abc import Iterable, Mapping

from attrs import define, field

from ale.attempts import mean, pass_at_k
from ale.errors import InputError
from ale.runs import SUCCESS, RunReader
from ale.types import Episode, Split


@define(kw_only=True)
class Attempts:
    """The attempts at one task."""

    rewards: list[float] = field(factory=list)
    """In the order of steps and rollouts, not of their ends."""
    answers: list[str | None] = field(factory=list)
    """The answer of each of these, if a criterion names it; None for no answer."""
    broken: int = 0
    seconds: float = 0.0
    """Total wall-clock time, including broken episodes."""
    cause: str = ""
    """Cause of the last broken episode."""
    temperatures: set[float | None] = field(factory=set)
    """At which an evaluation sampled them; None is the model's own."""
    _numbers: list[tuple[int, int]] = field(factory=list, init=False)
    """Step and rollout of each reward."""

    @property
    def n(self) -> int:
        """Graded attempts."""
        return len(self.rewards)

    @property
    def steps(self) -> set[int]:
        """Training steps of the graded attempts; of an evaluation, those before it."""
        return {step for step, _ in self._numbers}

    @property
    def passed(self) -> int:
        """Attempts with a reward of 1."""
        return sum(reward == SUCCESS for reward in self.rewards)

    def pass_at(self, k: int) -> float | None:
        """pass@k of this task; None where it has fewer than k graded attempts."""
        return pass_at_k(self.n, self.passed, k)

    @property
    def mean(self) -> float | None:
        """Mean reward of the graded attempts."""
        return mean(self.rewards) if self.rewards else None

    def add(self, episode: Episode) -> None:
        """Count an episode."""
        self.seconds += math.fsum(episode.seconds.values())
        self.temperatures.add(episode.temperature)
        if episode.reward is not None:
            number = (episode.step, episode.rollout)
            at = bisect.bisect(self._numbers, number)
            self._numbers.insert(at, number)
            self.rewards.insert(at, episode.reward)
            answers = (score.answer for score in episode.scores if score.answer is not None)
            self.answers.insert(at, next(answers, None))
            return
        self.broken += 1
        if episode.failure is not None:
            self.cause = f"{episode.failure.stage}: {episode.failure.message}"


def count_attempts(
    reader: RunReader, split: Split, step: int | None, temperature: float | None = None
) -> Mapping[str, Attempts]:
    """Attempts that start at their task's beginning, by task name.

    Args:
        step: training step; None for all steps.
        temperature: of an evaluation; None for all.

    Raises:
        InputError: there are none.
    """
    chosen = (
        each
        for each in reader.episodes
        if step in (None, each.step) and temperature in (None, each.temperature)
    )
    found = attempts_from(chosen, split)
    if not found:
        which = "" if step is None else f" in step {step}"
        which += "" if temperature is None else f" at temperature {temperature:g}"
        message = f"no episode of the split '{split}'{which}"
        raise InputError.of(message, file=str(reader.episodes.path))
    return found


def is_attempt(episode: Episode, split: Split = "train") -> bool:
    """Is it of this split, and did it start at its task's beginning?"""
    return episode.split == split and episode.start == ""


def attempts_from(episodes: Iterable[Episode], split: Split = "train") -> dict[str, Attempts]:
    """Attempts that start at their task's beginning, by task name; empty where there are none."""
    found: dict[str, Attempts] = {}
    for episode in episodes:
        if is_attempt(episode, split):
            found.setdefault(episode.task_id, Attempts()).add(episode)
    return dict(sorted(found.items()))
