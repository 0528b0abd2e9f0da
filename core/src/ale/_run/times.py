"""Where the seconds of each step go."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ale.types import Episode


class Times:
    """Two accounts of a step.

    The run does or waits for one thing at a time: these seconds, with `idle` for what is none of
    them, add up to the wall clock since the step before. Those of its episodes overlap, and with
    steps ahead most of them pass before the run waits for them.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """From here on, every second is the next step's."""
        self._monotonic = monotonic
        self._since = monotonic()
        self._run: dict[str, float] = defaultdict(float)
        self._episodes: dict[tuple[int, str], float] = defaultdict(float)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time of the block, which no other block is in."""
        began = self._monotonic()
        try:
            yield
        finally:
            self._run[what] += self._monotonic() - began

    def add(self, episode: Episode) -> None:
        """Count what an episode took, for the step that it is of; an evaluation's is of none."""
        if episode.split == "train":
            for stage, seconds in _seconds(episode).items():
                self._episodes[episode.step, stage] += seconds

    def of_step(self, step: int) -> dict[str, float]:
        """All of a step that is over, by what it went into."""
        now = self._monotonic()
        idle = now - self._since - math.fsum(self._run.values())
        spent = {**self._run, "idle": max(0.0, idle)}
        for key in [key for key in self._episodes if key[0] == step]:
            spent[f"episodes.{key[1]}"] = self._episodes.pop(key)
        self._since = now
        # What was once done and is not now is told as 0: a curve that left it out would mislead.
        self._run.update(dict.fromkeys(self._run, 0.0))
        return {f"seconds.{what}": seconds for what, seconds in sorted(spent.items())}


def _seconds(episode: Episode) -> Mapping[str, float]:
    """By stage, and of the agent's what its model and its tools took."""
    model = tools = 0.0
    for turn in episode.trajectory.turns:
        used = math.fsum(observation.duration_s for observation in turn.observations)
        tools += used
        model += max(0.0, turn.duration_s - used)
    return {**episode.seconds, "sampling": model, "tools": tools}
