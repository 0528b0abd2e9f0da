"""Plan episodes: which tasks, from which starts, how many rollouts, with which seeds."""

import hashlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from attrs import define, field, frozen

from ale._config import RunConfig, RunOptions
from ale._run.parts import PreparedTask, Tasks
from ale._store import Key, RunDirectory
from ale._store.groups import GroupKey
from ale._store.index import Index
from ale.errors import PluginError, Problem
from ale.protocols import Start, StartScheme
from ale.types import Job, Split, Task


def key_of(job: Job) -> Key:
    """Identifies a job's episode, also on disk."""
    return job.split, job.step, job.task.id, job.start, job.rollout, job.temperature


def _job(task: Task, key: Key, seed: int) -> Job:
    split, step, _, start, rollout, temperature = key
    return Job(
        id=episode_id(key),
        task=task,
        split=split,
        step=step,
        start=start,
        rollout=rollout,
        seed=seed,
        temperature=temperature,
    )


def episode_id(key: Key) -> str:
    """An episode's name, which is the same in every run of the same config."""
    split, step, task_id, name, rollout, temperature = key
    of = "evaluation-" if split == "evaluation" else ""
    start = f"@{name}" if name else ""
    sampled = "" if temperature is None else f"-T{temperature:g}"
    return f"{of}{step}-{task_id}{start}-{rollout}{sampled}"


def starts_of_step(
    tasks: Sequence[PreparedTask], options: RunOptions, step: int, scheme: StartScheme | None
) -> Sequence[Start]:
    """The starts of a step: its tasks' initial states, or what the scheme plans.

    Raises:
        PluginError: the scheme broke its contract.
    """
    drawn = [prepared.task for prepared in tasks_of_step(tasks, options, step)]
    if scheme is None:
        return [Start(task_id=task.id, rollouts=options.rollouts) for task in drawn]
    starts = scheme.plan(step, drawn, options.rollouts)
    known, seen = {task.id for task in drawn}, set()
    every = {prepared.task.id for prepared in tasks}
    for start in starts:
        # A demonstration may be shown again in a later step.
        of = every if start.demonstration else known
        if start.task_id not in of or start.rollouts < 1 or (start.task_id, start.name) in seen:
            raise PluginError(
                f"the start scheme returned {start} for step {step}: its task was not drawn, "
                "it has no rollouts, or it is a duplicate"
            )
        if not re.fullmatch(r"[A-Za-z0-9.+]*", start.name):
            raise PluginError(
                f"the start scheme named a start {start.name!r}: expected letters, digits, '.', '+'"
            )
        seen.add((start.task_id, start.name))
    return starts


def training_jobs(
    tasks: Mapping[str, PreparedTask], options: RunOptions, step: int, starts: Sequence[Start]
) -> Iterator[Job]:
    """The jobs of one step; the rollouts of each start are adjacent.

    Args:
        tasks: by id.
    """
    for start in starts:
        task = tasks[start.task_id].task
        for rollout in range(start.rollouts):
            yield _training_job(task, options.seed, step, start.name, rollout)


def _training_job(task: Task, seed: int, step: int, start: str, rollout: int) -> Job:
    where = (task.id, start) if start else (task.id,)
    key: Key = ("train", step, task.id, start, rollout, None)
    return _job(task, key, derive_seed(seed, step, *where, rollout))


def evaluation_jobs(
    tasks: Sequence[PreparedTask], seed: int, rollouts: int, step: int, temperature: float | None
) -> Iterator[Job]:
    """The jobs of one evaluation, with the same seeds each time to reduce the variance."""
    for prepared in tasks:
        task = prepared.task
        for rollout in range(rollouts):
            key: Key = ("evaluation", step, task.id, "", rollout, temperature)
            yield _job(task, key, derive_seed(seed, "evaluation", task.id, rollout))


def tasks_of_step(
    tasks: Sequence[PreparedTask], options: RunOptions, step: int
) -> Sequence[PreparedTask]:
    """All tasks, or the next `tasks_per_step` of a shuffled epoch.

    No task is drawn twice in an epoch; the rest of an epoch is dropped if it is too small for a
    step. The order depends only on the seed.
    """
    size = tasks_per_step(tasks, options)
    if size == len(tasks):
        return tasks
    epoch, batch = divmod(step, len(tasks) // size)
    order = list(range(len(tasks)))
    seed = derive_seed(options.seed, epoch, "order")
    random.Random(seed).shuffle(order)  # noqa: S311 - not a secret
    return [tasks[number] for number in order[batch * size : (batch + 1) * size]]


def tasks_per_step(tasks: Sequence[PreparedTask], options: RunOptions) -> int:
    """How many tasks a step draws: `tasks_per_step`, at most all of them."""
    wanted = options.tasks_per_step
    return len(tasks) if wanted is None else min(wanted, len(tasks))


def planned_episodes(config: RunConfig, tasks: Tasks) -> Mapping[Split, int] | None:
    """The number of episodes by split; None where it is decided during the run."""
    if config.starts is not None or config.run.refills or config.run.too_stale == "drop":
        return None
    options, evaluation = config.run, config.evaluation
    rounds = 0
    if evaluation is not None:
        due = {*range(0, options.steps, evaluation.options.every), options.steps}
        rounds = len(due) * evaluation.options.rollouts * len(config.evaluation_temperatures)
    return {
        "train": options.steps * tasks_per_step(tasks["train"], options) * options.rollouts,
        "evaluation": rounds * len(tasks["evaluation"]),
    }


def derive_seed(*parts: object) -> int:
    """A seed derived from the text of its arguments; below 2**53, so that JSON readers keep it."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 11


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Do the rewards of a group differ?"""
    return len(set(rewards)) > 1


def refill_problems(config: RunConfig) -> Iterator[Problem]:
    """Why no group could be drawn in place of another: it has no signal, or a scheme plans all."""
    if config.run.refills == 0:
        return
    if config.run.rollouts < 2:
        yield _useless("a group is one rollout", "run.rollouts of at least 2")
    if config.run.tasks_per_step is None:
        yield _useless("a step has all tasks", "run.tasks_per_step, below their number")
    if config.starts is not None:
        yield _useless("section 'starts' plans every start", "one of the two")


def _useless(reason: str, expected: str) -> Problem:
    message = f"nothing can be drawn in place of groups of equal rewards: {reason}"
    return Problem(path="run.refills", message=message, expected=expected)


def further_starts(
    tasks: Sequence[PreparedTask],
    config: RunConfig,
    index: Index,
    step: int,
    drawn: Sequence[Start],
    wanted: int,
) -> Sequence[Start]:
    """As many further tasks as groups with a signal are lacking; none is drawn twice in a step.

    A group of equal rewards has no advantage, so a step with many of them is a small batch. DAPO
    (arXiv:2503.14476, 3.2) samples until the batch is full of groups with an advantage; here the
    number of rounds is bounded.

    Args:
        drawn: what the step has sampled so far; its episodes are in the index.
        wanted: number of groups with a signal that fill the step.
    """
    rewards = index.group_rewards(step)
    full = sum(has_signal(rewards.get(GroupKey(step, start.task_id), ())) for start in drawn)
    known = {start.task_id for start in drawn}
    left = [prepared.task.id for prepared in tasks if prepared.task.id not in known]
    seed = derive_seed(config.run.seed, step, "refill", len(drawn))
    chosen = random.Random(seed).sample(left, min(max(0, wanted - full), len(left)))  # noqa: S311
    return [Start(task_id=task_id, rollouts=config.run.rollouts) for task_id in chosen]


@frozen(kw_only=True)
class Drawn:
    """A group to sample."""

    number: int
    """Number of groups drawn before it."""
    key: GroupKey
    jobs: Callable[[], Iterator[Job]]


@define
class StartPlan:
    """The starts of each step of drawing.

    What a scheme plans depends on the steps that it has learned from so far. Without a stream this
    is always the same number of steps. For a stream each plan is stored in ``groups.jsonl`` with
    that number, and a resumed run makes the scheme learn and plan in the same order.
    """

    tasks: Sequence[PreparedTask]
    options: RunOptions
    scheme: StartScheme | None
    store: RunDirectory
    trains: bool
    """Has the run a trainer, for which a group is to be whole?"""
    _planned: list[Sequence[Start]] = field(factory=list)
    """Starts of the first steps, as planned by a scheme."""
    _learned: int = 0
    """Number of steps that the scheme has learned from."""
    _by_id: Mapping[str, PreparedTask] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._by_id = {prepared.task.id: prepared for prepared in self.tasks}

    def restore(self) -> None:
        """Plan again what the run had planned before it was resumed.

        Raises:
            PluginError: the scheme plans something else now.
        """
        for version, groups in self.store.groups.planned:
            self.learn(version)
            step = len(self._planned)
            starts = self._starts(step)
            if _keys(step, starts) != tuple(groups):
                raise PluginError(
                    f"the start scheme plans other starts for step {step} than before the run was "
                    "resumed: has its code, its stored run or the order of the tasks changed?"
                )
            self._planned.append(starts)

    def learn(self, version: int) -> None:
        """Make the scheme learn from those of the first `version` steps that are new to it."""
        if self.scheme is None:
            return
        for step in range(self._learned, version):
            self.scheme.learn(step, self.store.graded(step))
            self._learned = step + 1

    def upto(self, steps: int) -> None:
        """Plan those of the first `steps` steps that are not planned yet."""
        while self.scheme is not None and len(self._planned) < steps:
            step = len(self._planned)
            starts = self._starts(step)
            if self.store.index.stream is not None:
                self.store.add_groups("planned", self._learned, _keys(step, starts))
            self._planned.append(starts)

    def starts(self, step: int) -> Sequence[Start]:
        """The groups of a step, which is planned now if it was not before."""
        self.upto(step + 1)
        return self._starts(step) if self.scheme is None else self._planned[step]

    def size(self, step: int) -> int:
        """Number of a step's groups."""
        if self.scheme is None:
            return tasks_per_step(self.tasks, self.options)
        return len(self.starts(step))

    def demonstrates(self, step: int) -> bool:
        """Are some of a step's starts demonstrations?"""
        return self.scheme is not None and any(each.demonstration for each in self.starts(step))

    def groups(self, last: int | None = None) -> Iterator[Drawn]:
        """Every group in the order in which the steps of a run without a stream would draw it.

        Args:
            last: the last step of drawing; None: there is no end.
        """
        number = itertools.count()
        for step in itertools.count() if last is None else range(last + 1):
            starts = self.starts(step)
            if not starts and step >= self.options.steps:
                raise PluginError(
                    f"the start scheme planned nothing for step {step}, whose groups are to "
                    "replace those that were dropped"
                )
            for start in starts:
                jobs = partial(self.jobs, step, [start])
                (key,) = _keys(step, [start])
                yield Drawn(number=next(number), key=key, jobs=jobs)

    def jobs(self, step: int, starts: Sequence[Start]) -> Iterator[Job]:
        """The jobs of a step's episodes from these starts.

        One whose episode is stored, and broke, is followed by the one in its place.
        """
        for first in training_jobs(self._by_id, self.options, step, starts):
            job: Job | None = first
            while job is not None:
                yield job
                job = self.in_place_of(job)

    def in_place_of(self, job: Job) -> Job | None:
        """The job of a fresh episode in the group of one that broke, with a seed of its own.

        None if the episode did not break, if as many in its place broke as ``run.retries`` allows,
        if a step has learned from the group, or if nothing learns from it.
        """
        key = key_of(job)
        if not self.trains or job.split != "train" or not self.store.index.broke(key):
            return None
        group = GroupKey(job.step, job.task.id, job.start)
        size = self._size(group)
        if job.rollout // size >= self.options.retries or self._is_learned(group):
            return None
        seed = self.options.seed
        return _training_job(job.task, seed, job.step, job.start, job.rollout + size)

    def _is_learned(self, group: GroupKey) -> bool:
        if self.store.index.stream is not None:
            return self.store.groups.is_used(group)
        return group.step <= self.store.checkpoints.newest()

    def short(self, step: int) -> int:
        """Number of groups of a training step that lack an episode with a reward."""
        index = self.store.index
        rewards = index.group_rewards(step)
        groups = index.group_keys(step)
        return sum(len(rewards.get(group, ())) < self._size(group) for group in groups)

    def start_of(self, job: Job) -> Start:
        """The start that a job names. It may have an expert, which can't be sent."""
        if job.split != "train":
            return Start(task_id=job.task.id, rollouts=self.options.rollouts)
        return self._start_of(GroupKey(job.step, job.task.id, job.start))

    def _start_of(self, group: GroupKey) -> Start:
        starts = () if self.scheme is None else self.starts(group.step)
        own = (each for each in starts if (each.task_id, each.name) == group[1:])
        return next(own, Start(task_id=group.task_id, rollouts=self.options.rollouts))

    def _size(self, group: GroupKey) -> int:
        """Number of episodes that a group is to have."""
        return self._start_of(group).rollouts

    def _starts(self, step: int) -> Sequence[Start]:
        return starts_of_step(self.tasks, self.options, step, self.scheme)


def _keys(step: int, starts: Sequence[Start]) -> tuple[GroupKey, ...]:
    return tuple(GroupKey(step, start.task_id, start.name) for start in starts)
