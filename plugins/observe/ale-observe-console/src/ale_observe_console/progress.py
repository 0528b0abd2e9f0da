"""The state that the console shows: counts, rate and running episodes. It draws nothing."""

from collections import deque
from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from ale.runs import SUCCESS
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    RunSteered,
    Stage,
    StepFinished,
    StepReport,
)

WINDOW_S = 60.0
MARK_S = 1.0
MOST_NOTICES = 5
"""Steps without an update that are reported one by one; the last line counts all."""


class Rate:
    """Episodes per second over a sliding window.

    The window is the last minute, or longer if fewer than `least` episodes finish in a minute: with
    eight long episodes running, one minute is no estimate. It keeps at most one mark per second.
    """

    def __init__(self, now: float, *, least: int) -> None:
        self._least = least
        self._n = 0
        self._marks: deque[tuple[float, int]] = deque([(now, 0)])

    def add(self, now: float) -> None:
        """Count a finished episode."""
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
    """An episode that is being run."""

    episode_id: str
    stage: Stage
    since: float
    """When its sandbox was requested, on the monotonic clock."""


@frozen(kw_only=True)
class FinishedStep:
    """A training step whose line has not been written yet."""

    report: StepReport
    seconds: float
    """Since the step before it, or since the start, without pauses."""


@define(kw_only=True)
class Progress:
    """The run so far. Times are of one monotonic clock, in seconds."""

    started: RunStarted
    started_at: float
    n_done: int
    n_graded: int
    n_succeeded: int
    n_broken: int
    n_timed_out: int = 0
    """Whose grading ran out of time; since this process began, as `n_damaged`."""
    n_damaged: int = 0
    """Whose agent damaged its sandbox."""
    rate: Rate
    running: dict[str, Running]
    step: StepReport | None = None
    step_at: float
    """When the last step finished, on the clock of `worked`; at first, when the run started."""
    n_steps_here: int = 0
    """Steps that finished since this process began."""
    unwritten: list[FinishedStep] = field(factory=list)
    n_steps: int = 0
    """Finished training steps whose trainer reports ``updates``."""
    n_idle_steps: int = 0
    """Number of these steps without an update."""
    notices: list[str] = field(factory=list)
    """Messages that have not been written yet."""
    n_in_place: int = 0
    """Episodes that took the place of broken ones, since this process began."""
    groups: dict[tuple[int, str, str], set[float]] = field(factory=dict)
    """Rewards of the training steps in progress, by step, task and start."""
    evaluations: dict[float | None, list[EvaluationFinished]] = field(factory=dict)
    """The first and the last one of each temperature."""
    finished: RunFinished | None = None
    paused: bool = False
    """No further episode starts."""
    _stands_since: float | None = None
    """When the clock of `worked` has stopped."""
    _stood_s: float = 0.0
    """How long it stood before."""

    @classmethod
    def start(cls, event: RunStarted, now: float) -> "Progress":
        """A run that has just been started or resumed."""
        return cls(
            started=event,
            started_at=now,
            n_done=event.n_done,
            n_graded=event.n_graded,
            n_succeeded=event.n_succeeded,
            n_broken=event.n_done - event.n_evaluated - event.n_expert_guided - event.n_graded,
            rate=Rate(now, least=2 * event.concurrency),
            running={},
            step_at=now,
        )

    @property
    def steps(self) -> tuple[int, int] | None:
        """Training steps that are done, and of how many; None where that is not known."""
        planned = self.started.config.get("run", {}).get("steps")
        if not self.started.config.get("trainer") or not planned:
            return None
        done = 0 if self.step is None else self.step.step + 1
        # Episodes that come from elsewhere are learned from until somebody stops the run.
        endless = self.started.n_episodes is None and planned == 1
        return None if endless or done > planned else (done, planned)

    def _is_in_place(self, rollout: int) -> bool:
        """Does it take the place of a broken one? Its number is then beyond the group's size."""
        size = self.started.config.get("run", {}).get("rollouts")
        return size is not None and bool(self.started.config.get("trainer")) and rollout >= size

    @property
    def n_planned(self) -> int | None:
        """Number of episodes of the whole run; None if it is decided during the run."""
        planned = self.started.n_episodes
        return None if planned is None else planned + self.n_in_place

    def steer(self, event: RunSteered, now: float) -> None:
        """Note whether the run is paused."""
        self.paused = event.paused
        self._stand_or_go(now)

    def _stand_or_go(self, now: float) -> None:
        """Stop the clock of `worked`, or start it again."""
        stands = self.paused and not self.running
        if stands and self._stands_since is None:
            self._stands_since = now
        elif not stands and self._stands_since is not None:
            self._stood_s += now - self._stands_since
            self._stands_since = None

    def worked(self, now: float) -> float:
        """`now` on a clock that stands while the run is paused and no episode runs."""
        return (now if self._stands_since is None else self._stands_since) - self._stood_s

    def per_s(self, now: float) -> float | None:
        """Episodes per second; None before the first one, and in a pause."""
        return None if self.paused else self.rate.per_s(self.worked(now))

    def enter(self, event: EpisodeStage, now: float) -> None:
        """Note the stage of an episode; a queued one is not running."""
        known = self.running.get(event.episode_id)
        if event.stage == "queued" or (known is None and event.stage == "teardown"):
            self.running.pop(event.episode_id, None)  # a late teardown must not revive it
            self._stand_or_go(now)
            return
        self.running[event.episode_id] = Running(
            episode_id=event.episode_id,
            stage=event.stage,
            since=now if known is None else known.since,
        )
        self._stand_or_go(now)

    def finish(self, event: EpisodeFinished, now: float) -> None:
        """Count an episode that is on disk."""
        self.n_done += 1
        self.rate.add(self.worked(now))
        self.running.pop(event.episode.id, None)
        self._stand_or_go(now)
        reward = event.episode.reward
        if event.episode.split == "evaluation":
            return
        self.n_in_place += self._is_in_place(event.episode.rollout)
        if reward is None:
            self.n_broken += 1
            return
        self.n_timed_out += event.episode.timed_out
        self.n_damaged += event.episode.damaged is not None
        if self.started.config.get("trainer"):
            group = (event.episode.step, event.episode.task_id, event.episode.start)
            self.groups.setdefault(group, set()).add(reward)
        if not event.episode.start:  # success from an expert's start is not the policy's own
            self.n_graded += 1
            self.n_succeeded += reward == SUCCESS

    def finish_step(self, event: StepFinished, now: float) -> None:
        """Keep the trainer's last report; note a step that made no update."""
        self.step = event.report
        at = self.worked(now)
        self.unwritten.append(FinishedStep(report=event.report, seconds=at - self.step_at))
        self.step_at = at
        self.n_steps_here += 1
        step, updates = event.report.step, event.report.metrics.get("updates")
        groups = [rewards for (at, _, _), rewards in self.groups.items() if at == step]
        self.groups = {key: rewards for key, rewards in self.groups.items() if key[0] > step}
        if updates is None:
            return
        self.n_steps += 1
        if updates == 0:
            self.n_idle_steps += 1
            if self.n_idle_steps <= MOST_NOTICES:
                why = self._why_idle(groups, event.report.metrics)
                self.notices.append(f"step {step}: {why}: nothing was learned")

    def _why_idle(self, groups: Sequence[set[float]], metrics: Mapping[str, float]) -> str:
        if metrics.get("steps_skipped"):
            return "a loss or gradient was not finite"
        if metrics.get("updates_without_gradient"):
            return "every token was masked, clipped or dropped by the correction"
        # After a resume, rewards of the step from before it are not known here.
        complete = not self.started.n_done
        tied = complete and groups and all(len(rewards) < 2 for rewards in groups)
        return "no group had two different rewards" if tied else "no update"

    def take_notices(self) -> list[str]:
        """The messages to be written, once."""
        notices, self.notices = self.notices, []
        return notices

    def take_steps(self) -> list[FinishedStep]:
        """The steps whose lines are to be written, once."""
        steps, self.unwritten = self.unwritten, []
        return steps

    def finish_evaluation(self, event: EvaluationFinished) -> None:
        """Keep the result of an evaluation."""
        earlier = self.evaluations.get(event.temperature, [])
        self.evaluations[event.temperature] = [*earlier[:1], event]

    def longest(self, n: int) -> Sequence[Running]:
        """The `n` longest-running episodes, oldest first."""
        return sorted(self.running.values(), key=lambda episode: episode.since)[:n]

    def left_s(self, now: float) -> float | None:
        """Seconds until the last episode at the current rate, or, where their number is decided
        during the run, until the last step; None if unknown. It stands still in a pause.
        """
        now = self.worked(now)
        rate = self.rate.per_s(now)
        if self.started.n_episodes is None:
            if self.steps is None or not self.n_steps_here:
                return None
            done, planned = self.steps
            per_step = (self.step_at - self.started_at) / self.n_steps_here
            return max(0.0, (planned - done) * per_step - (now - self.step_at))
        if rate is None:
            return None
        return max(0, (self.n_planned or 0) - self.n_done) / rate
