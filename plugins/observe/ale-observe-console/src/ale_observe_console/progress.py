"""What the console knows about the run: counts, rate and what is in work. It draws nothing."""

from collections import deque
from collections.abc import Sequence

from attrs import define, field, frozen

from ale.runs import SUCCESS
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    Stage,
    StepFinished,
    StepReport,
)

WINDOW_S = 60.0
MARK_S = 1.0


class Rate:
    """Episodes per second over a sliding window.

    The window is the last minute, or longer where it takes longer for `least` episodes to finish:
    with eight long episodes at once, a minute says nothing. It holds one mark a second at most.
    """

    def __init__(self, now: float, *, least: int) -> None:
        self._least = least
        self._n = 0
        self._marks: deque[tuple[float, int]] = deque([(now, 0)])

    def add(self, now: float) -> None:
        """One more has finished."""
        self._n += 1
        if now - self._marks[-1][0] >= MARK_S:
            self._marks.append((now, self._n))
        while len(self._marks) > 1 and self._is_enough(self._marks[1], now):
            self._marks.popleft()

    def _is_enough(self, mark: tuple[float, int], now: float) -> bool:
        return now - mark[0] >= WINDOW_S and self._n - mark[1] >= self._least

    def per_s(self, now: float) -> float | None:
        """Episodes per second; None before the first one. Falls while nothing finishes."""
        start, before = self._marks[0]
        if self._n == before or now <= start:
            return None
        return (self._n - before) / (now - start)


@frozen(kw_only=True)
class Running:
    """An episode in work."""

    episode_id: str
    stage: Stage
    since: float
    """When its sandbox was asked for, on the monotonic clock."""


@define(kw_only=True)
class Progress:
    """The run so far. Times are of one monotonic clock, in seconds."""

    started: RunStarted
    started_at: float
    n_done: int
    n_graded: int
    n_succeeded: int
    n_broken: int
    rate: Rate
    running: dict[str, Running]
    step: StepReport | None = None
    evaluations: list[EvaluationFinished] = field(factory=list)
    """The first and the last one."""
    finished: RunFinished | None = None

    @classmethod
    def start(cls, event: RunStarted, now: float) -> "Progress":
        """A run that has just begun, or begun again."""
        return cls(
            started=event,
            started_at=now,
            n_done=event.n_done,
            n_graded=event.n_graded,
            n_succeeded=event.n_succeeded,
            n_broken=event.n_done - event.n_evaluated - event.n_expert_guided - event.n_graded,
            rate=Rate(now, least=2 * event.concurrency),
            running={},
        )

    def enter(self, event: EpisodeStage, now: float) -> None:
        """Note the stage of an episode; one that waits in the queue is not in work."""
        known = self.running.get(event.episode_id)
        if event.stage == "queued" or (known is None and event.stage == "teardown"):
            self.running.pop(event.episode_id, None)  # a late teardown must not revive it
            return
        self.running[event.episode_id] = Running(
            episode_id=event.episode_id,
            stage=event.stage,
            since=now if known is None else known.since,
        )

    def finish(self, event: EpisodeFinished, now: float) -> None:
        """Count an episode that has been written to disk."""
        self.running.pop(event.episode.id, None)
        self.n_done += 1
        self.rate.add(now)
        reward = event.episode.reward
        if event.episode.split == "evaluation":
            return
        if reward is None:
            self.n_broken += 1
        elif not event.episode.start:  # what an expert began is not the policy's own success
            self.n_graded += 1
            self.n_succeeded += reward == SUCCESS

    def learn(self, event: StepFinished) -> None:
        """Keep the trainer's last report."""
        self.step = event.report

    def measure(self, event: EvaluationFinished) -> None:
        """Keep the result of an evaluation."""
        self.evaluations = [*self.evaluations[:1], event]

    def longest(self, n: int) -> Sequence[Running]:
        """The `n` episodes that have been in work longest, oldest first."""
        return sorted(self.running.values(), key=lambda episode: episode.since)[:n]

    def left_s(self, now: float) -> float | None:
        """Seconds until the last episode at the present rate; None where it can't be known."""
        rate = self.rate.per_s(now)
        if rate is None or self.started.n_episodes is None:
            return None
        return max(0, self.started.n_episodes - self.n_done) / rate
