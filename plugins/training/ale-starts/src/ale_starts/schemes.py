"""The start schemes. The state of each is a function of the episodes passed to `learn` alone."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from attrs import Factory, define, field, frozen

from ale.errors import InputError, Problem
from ale.protocols import Start, StartScheme
from ale.runs import SUCCESS
from ale.types import Episode, Task
from ale_figures.forks import Place
from ale_starts.demonstrations import (
    DEMONSTRATION,
    Demonstration,
    Experts,
    demonstration_of,
)
from ale_starts.options import InitialOptions, ParallelOptions, RollbackOptions

SuccessCount = tuple[int, int]
"""Successes and trials."""


def distinct(tasks: Sequence[Task]) -> list[Task]:
    """Each task once: a step may draw a task repeatedly from a small set."""
    return list({task.id: task for task in tasks}.values())


def start_at(task: Task, rollouts: int, p: int, demonstration: Demonstration | None) -> Start:
    """The start after the first `p` turns; `p` of 0 is the task's own beginning.

    The expert's next action at that point is recorded for trainers, because Eq. 10's imitation
    includes the crucial chunk.
    """
    if demonstration is None:
        return Start(task_id=task.id, rollouts=rollouts)
    return Start(
        task_id=task.id,
        rollouts=rollouts,
        name=Place(p, demonstration.turns, demonstration.tag).name,
        expert=(lambda: demonstration.expert(p)) if p else None,
        next_action=lambda: demonstration.expert(p + 1),
        expert_turns=demonstration.turns,
    )


class Initial:
    """Every rollout from the task's own beginning."""

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """One start per task."""
        return [start_at(task, rollouts, 0, None) for task in distinct(tasks)]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Do nothing."""


@define(eq=False, slots=False)
class WithDemonstrations:
    """Demonstrates whole tasks in the first steps, then uses another scheme.

    With `until`, each of these steps also has probes, rollouts of the policy alone, and
    demonstrations end after the first step in which enough probes succeed: how long imitation
    takes differs from seed to seed.

    With `after: same-demonstrations` the other scheme is not used: the demonstrations of the first
    step follow those of the last, and so on, without probes.
    """

    _scheme: StartScheme
    _options: InitialOptions
    _experts: Experts
    """Source of the demonstrations."""
    _shown: dict[int, list[Start]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._steps = self._options.demonstrations
        self._until = self._options.until
        self._probes = 0 if self._until is None else self._options.probes
        self._repeats = self._options.after == "same-demonstrations"

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """One rollout of each task that has an expert; afterwards the other scheme's plan.

        Raises:
            InputError: none of the tasks has an expert.
        """
        if step >= self._steps:
            if self._repeats:
                return self._shown.get((step - self._steps) % self._steps, [])
            return self._scheme.plan(step, tasks, rollouts)
        known = [(task, self._experts.initial(task)) for task in distinct(tasks)]
        starts = [_demonstrated(task.id, whole) for task, whole in known if whole is not None]
        if not starts:
            message = f"none of the {len(tasks)} tasks of step {step} has an expert to be imitated"
            expected = (
                "tasks with a reference solution (for expert: episodes, with a success in the "
                "stored run), or demonstrations: 0"
            )
            raise InputError.of(message, path="starts.demonstrations", expected=expected)
        return [*starts, *(start_at(task, 1, 0, None) for task in distinct(tasks)[: self._probes])]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """End the demonstrations if enough probes succeeded; pass all episodes on."""
        seen = list(episodes)
        if self._repeats and step < self._steps:
            # Read from the episodes: a resumed run has not planned the steps that are on disk.
            # A step of a stream may have learned from two demonstrations of a task.
            shown = {each.task_id: each for each in seen if each.start == DEMONSTRATION}
            self._shown[step] = [
                _demonstrated(task_id, demonstration_of(each, "off", tagged=False))
                for task_id, each in shown.items()
            ]
        if self._until is not None and step < self._steps:
            probes = [episode.reward == SUCCESS for episode in seen if not episode.start]
            if probes and sum(probes) / len(probes) >= self._until:
                self._steps = step + 1
        self._scheme.learn(step, seen)


def _demonstrated(task_id: str, whole: Demonstration) -> Start:
    return Start(
        task_id=task_id,
        rollouts=1,
        name=DEMONSTRATION,
        expert=lambda: whole.expert(None),
        expert_turns=whole.turns,
        demonstration=True,
    )


def require_experts(tasks: Sequence[Task]) -> None:
    """Refuse tasks without an expert.

    Raises:
        InputError: a task has no expert; the message names each such task.
    """
    if tasks:
        expected = "an expert for every task, or starts.missing: initial"
        raise InputError(
            [
                Problem(
                    message=f"task '{task.id}' has no expert",
                    file=task.origin or None,
                    path="starts",
                    expected=expected,
                )
                for task in tasks
            ]
        )


@frozen
class Parallel:
    """Several starts per task and step, drawn uniformly over the expert's turns; p = 0 is one."""

    _options: ParallelOptions
    _experts: Experts
    _required: bool = field(kw_only=True)
    """Every task must have an expert."""
    _seed: int = field(kw_only=True)

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """Up to `anchors` starts of each task, with its rollouts split as evenly as possible.

        Raises:
            InputError: a task has no expert and must have one.
        """
        if self._required:
            require_experts([task for task in distinct(tasks) if self._of(task) is None])
        return [start for task in distinct(tasks) for start in self._starts(step, task, rollouts)]

    def _of(self, task: Task) -> Demonstration | None:
        return self._experts.own_success(task.id) or self._experts.initial(task)

    def _starts(self, step: int, task: Task, rollouts: int) -> Iterable[Start]:
        demonstration = self._of(task)
        places = 1 if demonstration is None else demonstration.turns
        n_anchors = min(self._options.anchors, rollouts, places)
        # A text gives the same seed everywhere; a tuple's hash would not.
        rng = random.Random(f"anchors\x1f{self._seed}\x1f{step}\x1f{task.id}")  # noqa: S311
        anchors = [0, *sorted(rng.sample(range(1, places), n_anchors - 1))]
        each, over = divmod(rollouts, n_anchors)
        for number, p in enumerate(anchors):
            yield start_at(task, each + (number < over), p, demonstration)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Take own successes into account."""
        for episode in episodes:
            self._experts.add_episode(episode)


@define
class _Curriculum:
    """A task's current start, and its success counts."""

    demonstration: Demonstration | None
    p: int
    seen: list[SuccessCount] = Factory(list)
    """Counts per step since the start was last moved."""

    @property
    def name(self) -> str:
        if self.demonstration is None:
            return ""
        return Place(self.p, self.demonstration.turns, self.demonstration.tag).name

    def rate(self, least: int) -> float | None:
        """Success rate over the newest steps with `least` rollouts in total; None with fewer."""
        successes = trials = 0
        for won, n in reversed(self.seen):
            successes, trials = successes + won, trials + n
            if trials >= least:
                return successes / trials
        return None

    def move_to(self, demonstration: Demonstration, left: int) -> None:
        """Start `left` turns before the end, or at the beginning."""
        p = max(0, demonstration.turns - left)
        if (p, demonstration) != (self.p, self.demonstration):
            self.demonstration, self.p, self.seen = demonstration, p, []


@define(kw_only=True)
class _StepOutcome:
    """Results of one step for a task."""

    counts: dict[str, SuccessCount] = Factory(dict)
    """Counts by start."""
    expert: Demonstration | None = None
    """The best own success of the run so far."""


@frozen(eq=False)
class Rollback:
    """Starts just before the expert's last turn, and moves back as success from there recovers."""

    _options: RollbackOptions
    _experts: Experts
    _required: bool = field(kw_only=True)
    """Every task must have an expert."""
    _curricula: dict[str, _Curriculum] = field(factory=dict, init=False)
    _outcomes: dict[str, list[_StepOutcome]] = field(factory=lambda: defaultdict(list), init=False)
    """Results are applied when the task is drawn next."""

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """One start per task.

        Raises:
            InputError: a task has no expert and must have one.
        """
        drawn = distinct(tasks)
        if self._required:
            require_experts([t for t in drawn if self._experts.initial(t) is None])
        return [self._start(task, rollouts) for task in drawn]

    def _start(self, task: Task, rollouts: int) -> Start:
        if task.id not in self._curricula:
            first = self._experts.initial(task)
            p = 0 if first is None else first.turns - 1
            self._curricula[task.id] = _Curriculum(first, p)
        at = self._curricula[task.id]
        for outcome in self._outcomes.pop(task.id, []):
            self._apply(at, outcome)
        return start_at(task, rollouts, at.p, at.demonstration)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Count successes by task and start."""
        outcome: dict[str, _StepOutcome] = defaultdict(_StepOutcome)
        for episode in episodes:
            self._experts.add_episode(episode)
            counts = outcome[episode.task_id].counts
            won, n = counts.get(episode.start, (0, 0))
            counts[episode.start] = (won + (episode.reward == SUCCESS), n + 1)
        for task_id, one in outcome.items():
            one.expert = self._experts.own_success(task_id)
            self._outcomes[task_id].append(one)

    def _apply(self, at: _Curriculum, outcome: _StepOutcome) -> None:
        """Update the start from the results of one step."""
        if at.name in outcome.counts:
            at.seen.append(outcome.counts[at.name])
        rate = at.rate(self._options.min_rollouts)
        # A new expert is used only when the start moves: another state needs new counts.
        best = outcome.expert or at.demonstration
        if rate is None or best is None:
            return
        high = rate >= self._options.threshold
        if at.demonstration is None:
            if not high:
                at.move_to(best, 1)
            return
        left = at.demonstration.turns - at.p
        if high and at.p > 0:
            at.move_to(best, left + self._options.stride)
        elif rate == 0 and self._options.forward:
            at.move_to(best, max(1, left - self._options.stride))
