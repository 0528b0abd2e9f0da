"""How long each step took, by activity."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ale.types import Episode


class Times:
    """Measures the wall-clock seconds of the run's activities and of its episodes' stages.

    The run does or waits for one thing at a time: these seconds, with `idle` for the rest, add up
    to the wall clock since the previous step. The seconds of episodes overlap, and with
    `run.staleness` above 0 most of them pass before the run waits for these episodes.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Start measuring the first step."""
        self._monotonic = monotonic
        self._since = monotonic()
        self._run: dict[str, float] = defaultdict(float)
        self._episodes: dict[tuple[int, str], float] = defaultdict(float)

    @contextmanager
    def on(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity. Blocks must not be nested."""
        started = self._monotonic()
        try:
            yield
        finally:
            self._run[activity] += self._monotonic() - started

    def add(self, episode: Episode) -> None:
        """Add a training episode's stages to its step; an evaluation episode is not counted."""
        if episode.split == "train":
            for stage, seconds in _seconds(episode).items():
                self._episodes[episode.step, stage] += seconds

    def of_step(self, step: int) -> dict[str, float]:
        """The seconds of a finished step, as metrics."""
        now = self._monotonic()
        idle = now - self._since - math.fsum(self._run.values())
        spent = {**self._run, "idle": max(0.0, idle)}
        for key in [key for key in self._episodes if key[0] == step]:
            spent[f"episodes.{key[1]}"] = self._episodes.pop(key)
        self._since = now
        # An activity of an earlier step is reported as 0: a gap in its curve would mislead.
        self._run.update(dict.fromkeys(self._run, 0.0))
        return {f"seconds.{name}": seconds for name, seconds in sorted(spent.items())}


def _seconds(episode: Episode) -> Mapping[str, float]:
    """By stage; and of the agent's stage, those in its model and in its tools."""
    model = tools = 0.0
    for turn in episode.trajectory.turns:
        used = math.fsum(observation.duration_s for observation in turn.observations)
        tools += used
        model += max(0.0, turn.duration_s - used)
    return {**episode.seconds, "sampling": model, "tools": tools}
