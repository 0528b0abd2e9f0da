"""One pass over a stored run: data for curves and tables, and the offset of each episode."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from attrs import define, field

from ale.attempts import Repeats, repeats
from ale.intervals import Z95, success_interval, t_quantile
from ale.runs import (
    SUCCESS,
    Causes,
    Index,
    RunReader,
    adapted,
    alerts,
    ended_because,
    evaluated_on,
    learning,
)
from ale.text import shorten, shorten_middle
from ale.types import Completion, Episode
from ale_figures.forks import Counts, Curves
from ale_look.inspect.kinds import KINDS, Kind, kind_of, names_of
from ale_look.inspect.progress import Progress, progress_of


class Head(NamedTuple):
    """The facts of every episode that stay in memory."""

    offset: int
    id: str
    task_id: str
    kind: Kind
    step: int
    rollout: int
    reward: float | None
    turns: int
    seconds: float
    why: str = ""
    """Why it broke or failed, in a line."""


class TaskSums(NamedTuple):
    """Adds up the graded episodes of one task."""

    n: int = 0
    succeeded: int = 0
    reward: float = 0.0


@define
class Sums:
    """Adds up episodes."""

    n: int = 0
    """Graded episodes; the sums below, except `broken` and `seconds`, are over these."""
    succeeded: int = 0
    broken: int = 0
    timed_out: int = 0
    """Graded episodes with a criterion that ran out of time."""
    damaged: int = 0
    """Graded episodes whose agent damaged its sandbox."""
    contested: int = 0
    """Graded episodes with a criterion that passed, and is contested."""
    reward: float = 0.0
    squares: float = 0.0
    """Sum of the squared differences of the rewards to their mean; see `_joined`."""
    least: float = 0.0
    """Reward, and at most 0: rewards are in [0, 1] but for tasks with a scale of their own."""
    most: float = 1.0
    """Likewise, at least 1."""
    turns: int = 0
    calls: int = 0
    sampled: int = 0
    """Turns that the model sampled: the others were given to it."""
    tokens: int = 0
    """Tokens of the sampled turns."""
    seconds: Counter[str] = field(factory=Counter)
    """By stage; broken episodes included."""
    tasks: dict[str, TaskSums] = field(factory=dict)
    """By task."""

    def add(self, episode: Episode) -> None:
        """Count an episode."""
        for stage, seconds in episode.seconds.items():
            self.seconds[stage] += seconds  # type: ignore[assignment]
        if episode.reward is None:
            self.broken += 1
            return
        self.squares = _joined(self, Sums(n=1, reward=episode.reward))
        self.n += 1
        self.succeeded += episode.reward == SUCCESS
        self.timed_out += episode.timed_out
        self.damaged += episode.damaged is not None
        self.contested += episode.contested
        self.reward += episode.reward
        self._add_task(episode.task_id, TaskSums(1, episode.reward == SUCCESS, episode.reward))
        self.least = min(self.least, episode.reward)
        self.most = max(self.most, episode.reward)
        turns = episode.trajectory.turns
        self.turns += len(turns)
        self.calls += sum(len(turn.observations) for turn in turns)
        sampled = [turn.completion for turn in turns if not turn.completion.forced]
        self.sampled += len(sampled)
        self.tokens += sum(map(_generated, sampled))

    def _add_task(self, task_id: str, of: TaskSums) -> None:
        n, succeeded, reward = self.tasks.get(task_id, TaskSums())
        self.tasks[task_id] = TaskSums(n + of.n, succeeded + of.succeeded, reward + of.reward)

    @property
    def tries(self) -> int:
        """Graded and broken ones."""
        return self.n + self.broken

    def merged(self, others: "Iterable[Sums]") -> "Sums":
        """The sum of all of them, as a new object."""
        made = Sums()
        for each in (self, *others):
            made.squares = _joined(made, each)
            for name in _ADDED:
                setattr(made, name, getattr(made, name) + getattr(each, name))
            made.least, made.most = min(made.least, each.least), max(made.most, each.most)
            made.seconds.update(each.seconds)
            for task_id, of in each.tasks.items():
                made._add_task(task_id, of)
        return made

    def success(self) -> tuple[float, float, float] | None:
        """Success rate and its 95% interval, see `ale.intervals.success_interval`; None of none."""
        if not self.n:
            return None
        counts = ((of.n, of.succeeded) for of in self.tasks.values())
        return (self.succeeded / self.n, *success_interval(counts))

    def mean_reward(self) -> tuple[float, float, float] | None:
        """Mean and its 95% interval; None of none. The interval is in [0, 1] where the rewards are.

        The interval is Student's, from the variance between tasks, as episodes of one task resemble
        each other (arXiv:2411.00640, 2.2: clustered standard errors); it is not narrower than that
        of independent episodes by the normal approximation, which is that of a single task.
        """
        if not self.n:
            return None
        mean = self.reward / self.n
        spread = Z95 * math.sqrt(self.squares / max(1, self.n - 1) / self.n)
        tasks = len(self.tasks)
        if tasks > 1:
            apart = math.hypot(*(of.reward - of.n * mean for of in self.tasks.values())) / self.n
            spread = max(spread, t_quantile(tasks - 1) * apart * math.sqrt(tasks / (tasks - 1)))
        low, high = mean - spread, mean + spread
        if self.least < 0 or self.most > 1:
            return mean, low, high
        return mean, max(0.0, low), min(1.0, high)


_ADDED = (
    "n",
    "succeeded",
    "broken",
    "timed_out",
    "damaged",
    "contested",
    "reward",
    "turns",
    "calls",
    "sampled",
    "tokens",
)


def _joined(one: Sums, other: Sums) -> float:
    """`Sums.squares` of both together.

    A sum of the squared rewards would lose the differences of large ones (Chan, Golub and LeVeque,
    1983, Algorithms for computing the sample variance, Am. Stat. 37).
    """
    apart = 0.0
    if one.n and other.n:
        distance = one.reward / one.n - other.reward / other.n
        apart = distance * distance * (one.n * other.n / (one.n + other.n))
    return one.squares + other.squares + apart


def _generated(completion: Completion) -> int:
    if completion.tokens is not None:
        return len(completion.tokens.output_ids)
    return int(completion.usage.completion_tokens)


@define
class Facts:
    """Everything that the report shows of a run as a whole."""

    manifest: Mapping[str, Any]
    state: str
    """As `RunReader.state`."""
    paused: bool = False
    evaluated_on: str = "held-out tasks"
    names: Mapping[Kind, str] = KINDS
    """Those of the run."""
    heads: list[Head] = field(factory=list)
    by_step: dict[tuple[Kind, int], Sums] = field(factory=dict)
    by_task: dict[tuple[Kind, str], Sums] = field(factory=dict)
    by_start: dict[tuple[str, str], Sums] = field(factory=dict)
    """By task and name of the start; training tasks only."""
    task_steps: dict[tuple[Kind, str], dict[int, tuple[int, int]]] = field(factory=dict)
    """Successes and graded episodes of a task by step."""
    stops: Counter[str] = field(factory=Counter)
    causes: Causes = field(factory=Causes)
    metrics: dict[str, dict[int, float]] = field(factory=dict)
    """The trainer's, by name and step; a number that is not finite is left out."""
    not_finite: Counter[str] = field(factory=Counter)
    notices: list[Mapping[str, Any]] = field(factory=list)
    """The last events that a reader may need: errors of observers, resumes, pruned episodes."""
    ended_because: str | None = None
    alerts: Sequence[str] = ()
    """Those of ``run.alert_if``, oldest first."""
    warning: str | None = None
    """Training steps that learned nothing."""
    missing: int = 0
    """Episodes that the run had when it ended, and its file lacks."""
    left_out: Sequence[str] = ()
    """Messages about damaged lines that were left out."""
    progress: Progress | None = None
    adapted: str | None = None
    """The number that ``run.concurrency: auto`` has found."""
    goals: dict[str, str] = field(factory=dict)
    forks: Curves = field(factory=lambda: Counts().curves())
    """Success before and after each turn of an expert."""

    def total(self, *kinds: Kind) -> Sums:
        """Over all steps; of every kind where none is named."""
        return Sums().merged(
            sums for (of, _), sums in self.by_step.items() if not kinds or of in kinds
        )

    def evaluations(self) -> list[Kind]:
        """The kinds of evaluation."""
        return sorted({kind for kind, _ in self.by_step if kind.startswith("evaluation")})

    def repeats(self, kind: Kind, step: int) -> Repeats | None:
        """Successes over the samples of each task; None if each task has one."""
        steps = [of for (which, _), of in self.task_steps.items() if which == kind]
        counts = [of.get(step, (0, 0)) for of in steps]
        return repeats((graded, succeeded) for succeeded, graded in counts)

    def steps(self, *kinds: Kind) -> list[int]:
        """Steps that have episodes of these kinds."""
        return sorted({step for of, step in self.by_step if not kinds or of in kinds})


_NOTICES = ("reported", "run_resumed", "pruned")
_MOST_NOTICES = 50
_GOAL = 300
_WHY = 160
"""Characters of a reason."""


def gather(run: RunReader) -> Facts:
    """Read a run once, one episode in memory at a time.

    Raises:
        InputError: a stored line is damaged.
    """
    facts, counts, index = Facts(run.manifest, run.state), Counts(), run.index()
    for offset, episode in run.episodes.once():
        add_episode(facts, offset, episode, index.learned_in(episode))
        counts.add(episode)
    complete(facts, run, index, counts)
    return facts


def complete(facts: Facts, run: RunReader, index: Index, counts: Counts) -> None:
    """Set what is of the run as a whole, once its episodes have been added."""
    facts.manifest, facts.state, facts.paused = run.manifest, run.state, run.paused
    facts.evaluated_on, facts.names = evaluated_on(run), names_of(run)
    facts.forks = counts.curves()
    facts.metrics, facts.not_finite, facts.notices = {}, Counter(), []
    for event in run.events():
        if event.get("event") == "step_finished":
            _add_metrics(facts, event)
        elif event.get("event") in _NOTICES:
            facts.notices = [*facts.notices[1 - _MOST_NOTICES :], event]
    facts.ended_because, facts.alerts = ended_because(run.events()), alerts(run.events())
    facts.missing = run.missing(index)
    facts.warning = learning(run.events(), index).warning()
    facts.progress = progress_of(run.events())
    facts.adapted = adapted(run.events())
    if any(task_id not in facts.goals for _, task_id in facts.by_task):
        for task in chain(run.tasks, run.evaluation_tasks):
            facts.goals[task.id] = task.goal[:_GOAL]


def add_episode(facts: Facts, offset: int, episode: Episode, learned_in: int | None) -> None:
    """Count an episode.

    Args:
        offset: of its line.
        learned_in: the step that learned from it; None where no step did, for that of the episode.
    """
    step = episode.step if learned_in is None else learned_in
    kind = kind_of(episode)
    facts.heads.append(
        Head(
            offset=offset,
            id=episode.id,
            task_id=episode.task_id,
            kind=kind,
            step=step,
            rollout=episode.rollout,
            reward=episode.reward,
            turns=len(episode.trajectory.turns),
            seconds=sum(episode.seconds.values()),
            why=_why(episode),
        )
    )
    facts.by_step.setdefault((kind, step), Sums()).add(episode)
    facts.by_task.setdefault((kind, episode.task_id), Sums()).add(episode)
    if episode.split == "train":
        facts.by_start.setdefault((episode.task_id, episode.start), Sums()).add(episode)
    if episode.reward is not None:
        steps = facts.task_steps.setdefault((kind, episode.task_id), {})
        won, of = steps.get(step, (0, 0))
        steps[step] = (won + (episode.reward == SUCCESS), of + 1)
        facts.stops[episode.trajectory.stop.reason] += 1
    facts.causes.add(episode)


def _why(episode: Episode) -> str:
    if episode.failure is not None:
        failure = episode.failure
        return shorten_middle(f"{failure.stage}: {failure.kind}: {failure.message}", _WHY)
    if episode.reward is None or episode.reward >= SUCCESS:
        return ""
    missed = next((score for score in episode.scores if not score.passed), None)
    return "" if missed is None else shorten(f"{missed.criterion}: {missed.detail}", _WHY)


def _add_metrics(facts: Facts, event: Mapping[str, Any]) -> None:
    step = int(event.get("step", 0))
    for name, value in (event.get("metrics") or {}).items():
        if isinstance(value, int | float) and math.isfinite(value):
            facts.metrics.setdefault(name, {})[step] = float(value)
        else:
            facts.metrics.setdefault(name, {})
            facts.not_finite[name] += 1
