"""The start schemes. What each keeps follows from the episodes that it was told of, and no more."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from attrs import Factory, define

from ale.errors import InputError, Problem
from ale.protocols import Start, StartScheme
from ale.runs import SUCCESS
from ale.types import Episode, Task
from ale_forks import Place
from ale_starts.demonstrations import Demonstration, Experts
from ale_starts.names import DEMONSTRATION
from ale_starts.options import InitialOptions, ParallelOptions, RollbackOptions

Tally = tuple[int, int]
"""Successes and trials."""


def distinct(tasks: Sequence[Task]) -> list[Task]:
    """Each task once: a small set is gone round more than once in a step."""
    return list({task.id: task for task in tasks}.values())


def start_at(task: Task, rollouts: int, p: int, demonstration: Demonstration | None) -> Start:
    """The start after the first `p` turns; `p` of 0 is the task's own beginning.

    The turn after these is where the rollouts begin to differ from the expert: what it says there
    is kept for a trainer, since Eq. 10 imitates up to and with the crucial chunk.
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
        """Nothing."""


class Demonstrating:
    """Says whole ways through the tasks first, then leaves the word to another scheme.

    With `until`, the policy tries some tasks by itself beside them, and the demonstrations end
    with the first step in which enough of these succeed: how long an imitation takes until it
    bears fruit differs from seed to seed, and what comes after it costs time too.

    Args:
        experts: who knows the ways, before a rollout of this run is known.
    """

    def __init__(self, scheme: StartScheme, options: InitialOptions, experts: Experts) -> None:
        self._scheme = scheme
        self._experts = experts
        self._steps = options.demonstrations
        self._until = options.until
        self._probes = 0 if options.until is None else options.probes

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """One rollout of each task that has an expert; afterwards the other scheme's plan.

        Raises:
            InputError: none of the tasks has one.
        """
        if step >= self._steps:
            return self._scheme.plan(step, tasks, rollouts)
        known = [(task, self._experts.at_first(task)) for task in distinct(tasks)]
        starts = [_demonstrated(task, whole) for task, whole in known if whole is not None]
        if not starts:
            message = f"none of the {len(tasks)} tasks of step {step} has an expert to be imitated"
            expected = (
                "tasks with a reference solution (for expert: episodes, with a success in the "
                "stored run), or demonstrations: 0"
            )
            raise InputError(
                [Problem(message=message, path="starts.demonstrations", expected=expected)]
            )
        return [*starts, *(start_at(task, 1, 0, None) for task in distinct(tasks)[: self._probes])]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """End the demonstrations if it is time; the other scheme is told of everything."""
        seen = list(episodes)
        if self._until is not None and step < self._steps:
            probes = [episode.reward == SUCCESS for episode in seen if not episode.start]
            if probes and sum(probes) / len(probes) >= self._until:
                self._steps = step + 1
        self._scheme.learn(step, seen)


def _demonstrated(task: Task, whole: Demonstration) -> Start:
    return Start(
        task_id=task.id,
        rollouts=1,
        name=DEMONSTRATION,
        expert=lambda: whole.expert(None),
        expert_turns=whole.turns,
        demonstration=True,
    )


def refuse_missing(tasks: Sequence[Task]) -> None:
    """Say which tasks have no expert.

    Raises:
        InputError: there are some.
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


class Parallel:
    """Anchors drawn uniformly over an expert's turns, side by side, p = 0 among them."""

    def __init__(
        self, options: ParallelOptions, experts: Experts, *, must_have: bool, seed: int
    ) -> None:
        self._options = options
        self._experts = experts
        self._must_have = must_have
        self._seed = seed

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """Up to `anchors` starts of each task, its rollouts split as evenly as can be.

        Raises:
            InputError: a task has no expert and must have one.
        """
        if self._must_have:
            refuse_missing([task for task in distinct(tasks) if self._of(task) is None])
        return [start for task in distinct(tasks) for start in self._starts(step, task, rollouts)]

    def _of(self, task: Task) -> Demonstration | None:
        return self._experts.learned(task.id) or self._experts.at_first(task)

    def _starts(self, step: int, task: Task, rollouts: int) -> Iterable[Start]:
        demonstration = self._of(task)
        places = 1 if demonstration is None else demonstration.turns
        n_anchors = min(self._options.anchors, rollouts, places)
        # A text seeds the same generator everywhere; a tuple's hash would not.
        rng = random.Random(f"anchors\x1f{self._seed}\x1f{step}\x1f{task.id}")  # noqa: S311
        anchors = [0, *sorted(rng.sample(range(1, places), n_anchors - 1))]
        each, over = divmod(rollouts, n_anchors)
        for number, p in enumerate(anchors):
            yield start_at(task, each + (number < over), p, demonstration)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Look for successes that may be experts."""
        for episode in episodes:
            self._experts.see(episode)


@define
class _Curriculum:
    """Where a task's rollouts start, and how they went there."""

    demonstration: Demonstration | None
    p: int
    seen: list[Tally] = Factory(list)
    """Of each step since the start was last moved."""

    @property
    def name(self) -> str:
        if self.demonstration is None:
            return ""
        return Place(self.p, self.demonstration.turns, self.demonstration.tag).name

    def rate(self, least: int) -> float | None:
        """Success over the newest steps that hold `least` rollouts; None where all hold fewer."""
        successes = trials = 0
        for won, n in reversed(self.seen):
            successes, trials = successes + won, trials + n
            if trials >= least:
                return successes / trials
        return None

    def go(self, demonstration: Demonstration, left: int) -> None:
        """Start `left` turns before the end, or at the beginning."""
        p = max(0, demonstration.turns - left)
        if (p, demonstration) != (self.p, self.demonstration):
            self.demonstration, self.p, self.seen = demonstration, p, []


@define(kw_only=True)
class _Told:
    """What one step said about a task."""

    tallies: dict[str, Tally] = Factory(dict)
    """By start."""
    expert: Demonstration | None = None
    """The best that the run itself had shown by then."""


class Rollback:
    """Starts just before the expert's last turn, and moves back as success from there recovers."""

    def __init__(self, options: RollbackOptions, experts: Experts, *, must_have: bool) -> None:
        self._options = options
        self._experts = experts
        self._must_have = must_have
        self._curricula: dict[str, _Curriculum] = {}
        # A task is only known when it is drawn: until then, what was told of it waits.
        self._told: dict[str, list[_Told]] = defaultdict(list)

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """One start per task.

        Raises:
            InputError: a task has no expert and must have one.
        """
        drawn = distinct(tasks)
        if self._must_have:
            refuse_missing([t for t in drawn if self._experts.at_first(t) is None])
        return [self._start(task, rollouts) for task in drawn]

    def _start(self, task: Task, rollouts: int) -> Start:
        if task.id not in self._curricula:
            first = self._experts.at_first(task)
            p = 0 if first is None else first.turns - 1
            self._curricula[task.id] = _Curriculum(first, p)
        at = self._curricula[task.id]
        for told in self._told.pop(task.id, []):
            self._follow(at, told)
        return start_at(task, rollouts, at.p, at.demonstration)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Count successes by task and start."""
        told: dict[str, _Told] = defaultdict(_Told)
        for episode in episodes:
            self._experts.see(episode)
            tallies = told[episode.task_id].tallies
            won, n = tallies.get(episode.start, (0, 0))
            tallies[episode.start] = (won + (episode.reward == SUCCESS), n + 1)
        for task_id, one in told.items():
            one.expert = self._experts.learned(task_id)
            self._told[task_id].append(one)

    def _follow(self, at: _Curriculum, told: _Told) -> None:
        """Move the start by what one step has shown, or leave it."""
        if at.name in told.tallies:
            at.seen.append(told.tallies[at.name])
        rate = at.rate(self._options.min_rollouts)
        # A new expert is only taken when the start moves: another state needs counts of its own.
        best = told.expert or at.demonstration
        if rate is None or best is None:
            return
        high = rate >= self._options.threshold
        if at.demonstration is None:
            if not high:
                at.go(best, 1)
            return
        left = at.demonstration.turns - at.p
        if high and at.p > 0:
            at.go(best, left + self._options.stride)
        elif rate == 0 and self._options.forward:
            at.go(best, max(1, left - self._options.stride))
