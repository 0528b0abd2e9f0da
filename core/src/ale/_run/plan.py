"""Plan a step: which tasks, from which starts, how many rollouts, with which seeds."""

import hashlib
import random
import re
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale._config import RunOptions
from ale._run.parts import PreparedTask
from ale._store import Key
from ale.errors import PluginError
from ale.protocols import Start, StartScheme
from ale.types import Job


@frozen(kw_only=True)
class EpisodePlan:
    """An episode to run."""

    job: Job
    prepared: PreparedTask
    start: Start

    @property
    def key(self) -> Key:
        """Identifies the episode, also on disk."""
        job = self.job
        return job.split, job.step, job.task.id, job.start, job.rollout, job.temperature


def _planned(prepared: PreparedTask, start: Start, key: Key, seed: int) -> EpisodePlan:
    split, step, _, name, rollout, temperature = key
    job = Job(
        id=episode_id(key),
        task=prepared.task,
        split=split,
        step=step,
        start=name,
        rollout=rollout,
        seed=seed,
        temperature=temperature,
    )
    return EpisodePlan(job=job, prepared=prepared, start=start)


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


def episode_plans(
    tasks: Sequence[PreparedTask], options: RunOptions, step: int, starts: Sequence[Start]
) -> Iterator[EpisodePlan]:
    """The episodes of one step; the rollouts of each start are adjacent."""
    by_id = {prepared.task.id: prepared for prepared in tasks}
    for start in starts:
        where = (start.task_id, start.name) if start.name else (start.task_id,)
        for rollout in range(start.rollouts):
            key: Key = ("train", step, start.task_id, start.name, rollout, None)
            seed = derive_seed(options.seed, step, *where, rollout)
            yield _planned(by_id[start.task_id], start, key, seed)


def evaluation_plans(
    tasks: Sequence[PreparedTask], seed: int, rollouts: int, step: int, temperature: float | None
) -> Iterator[EpisodePlan]:
    """The episodes of one evaluation, with the same seeds each time to reduce the variance."""
    for prepared in tasks:
        task_id = prepared.task.id
        start = Start(task_id=task_id, rollouts=rollouts)
        for rollout in range(rollouts):
            key: Key = ("evaluation", step, task_id, "", rollout, temperature)
            seed_of_task = derive_seed(seed, "evaluation", task_id, rollout)
            yield _planned(prepared, start, key, seed_of_task)


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


def derive_seed(*parts: object) -> int:
    """A seed derived from the text of its arguments; below 2**53, so that JSON readers keep it."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 11
