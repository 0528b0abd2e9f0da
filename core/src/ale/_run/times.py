"""How long each step took, by activity."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from ale._store.groups import GroupKey
from ale.types import Episode


class Times:
    """Measures the wall-clock seconds of the run's activities and of its episodes' stages.

    The run does, or waits for, one thing at a time: the seconds of its activities, with `idle` for
    the rest, add up to the wall clock since the previous step. The seconds of episodes overlap, and
    with `run.staleness` above 0 most of them pass before the run waits for these episodes.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since = monotonic()
        self._run: dict[str, float] = defaultdict(float)
        self._episodes: dict[GroupKey, dict[str, float]] = {}
        self._held_up = 0.0
        self._held_up_since: float | None = None

    def begin(self) -> None:
        """Start measuring the first step."""
        self._since = self._monotonic()

    @contextmanager
    def on(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity. Blocks must not be nested."""
        started = self._monotonic()
        try:
            yield
        finally:
            self._run[activity] += self._monotonic() - started

    @contextmanager
    def holding_up_rollouts(self) -> Iterator[None]:
        """Measure a block in which no further group of a stream may start."""
        self._held_up_since = self._monotonic()
        try:
            yield
        finally:
            self._held_up += self._monotonic() - self._held_up_since
            self._held_up_since = None

    def add(self, episode: Episode) -> None:
        """Add a training episode's stages to its group; an evaluation episode is not counted."""
        if episode.split == "train":
            group = GroupKey(episode.step, episode.task_id, episode.start)
            spent = self._episodes.setdefault(group, defaultdict(float))
            for stage, seconds in _seconds(episode).items():
                spent[stage] += seconds

    def of_step(self, groups: Collection[GroupKey], *, stream: bool = False) -> dict[str, float]:
        """The seconds of a finished step that learned from these groups, as metrics.

        Args:
            stream: groups are sampled in a stream, whose start of groups training may hold up.
        """
        now = self._monotonic()
        wall = now - self._since
        spent = {**self._run, "idle": max(0.0, wall - math.fsum(self._run.values()))}
        for stages in [self._episodes.pop(group, {}) for group in sorted(groups)]:
            for stage, seconds in stages.items():
                name = f"episodes.{stage}"
                spent[name] = spent.get(name, 0.0) + seconds
        waiting = self._waiting(now, wall, stream=stream)
        self._since = now
        # An activity of an earlier step is reported as 0: a gap in its curve would mislead.
        self._run.update(dict.fromkeys(self._run, 0.0))
        return waiting | {f"seconds.{name}": seconds for name, seconds in sorted(spent.items())}

    def _waiting(self, now: float, wall: float, *, stream: bool) -> dict[str, float]:
        """The shares of a step in which training waited for groups, and groups for training."""
        if self._held_up_since is not None:
            self._held_up += now - self._held_up_since
            self._held_up_since = now
        held_up, self._held_up = self._held_up, 0.0
        found = {"trainer_waiting_share": self._run["rollouts"] / wall if wall else 0.0}
        if stream:
            found["rollouts_waiting_share"] = held_up / wall if wall else 0.0
        return found


def _seconds(episode: Episode) -> Mapping[str, float]:
    """Seconds by stage, and within the agent's stage, those in its model and in its tools."""
    model = tools = 0.0
    for turn in episode.trajectory.turns:
        used = math.fsum(observation.duration_s for observation in turn.observations)
        tools += used
        model += max(0.0, turn.duration_s - used)
    return {**episode.seconds, "sampling": model, "tools": tools}
