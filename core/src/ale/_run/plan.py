"""What is to be done: which tasks in which step, from which start, how often, from which seed."""

import hashlib
import random
import re
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale._config import RunOptions
from ale._run.parts import TaskToRun
from ale._store import Key
from ale.errors import PluginError
from ale.protocols import Start, StartScheme
from ale.types import Split


@frozen(kw_only=True)
class Work:
    """One episode to run."""

    split: Split = "train"
    step: int
    ready: TaskToRun
    start: Start
    rollout: int
    seed: int

    @property
    def key(self) -> Key:
        """What it is, on disk too."""
        return (self.split, self.step, self.ready.task.id, self.start.name, self.rollout)

    @property
    def id(self) -> str:
        """A name that is the same in every run of the same config."""
        split = "evaluation-" if self.split == "evaluation" else ""
        start = f"@{self.start.name}" if self.start.name else ""
        return f"{split}{self.step}-{self.ready.task.id}{start}-{self.rollout}"


def starts_of_step(
    tasks: Sequence[TaskToRun], options: RunOptions, step: int, scheme: StartScheme | None
) -> Sequence[Start]:
    """Where the rollouts of a step begin: from the tasks' own beginnings, or as the scheme says.

    Raises:
        PluginError: the scheme broke its contract.
    """
    drawn = [ready.task for ready in tasks_of_step(tasks, options, step)]
    if scheme is None:
        return [Start(task_id=task.id, rollouts=options.rollouts) for task in drawn]
    starts = scheme.plan(step, drawn, options.rollouts)
    known, seen = {task.id for task in drawn}, set()
    for start in starts:
        if start.task_id not in known or start.rollouts < 1 or (start.task_id, start.name) in seen:
            raise PluginError(f"starts gave {start} for step {step}: unknown, empty or twice")
        if not re.fullmatch(r"[A-Za-z0-9.+]*", start.name):
            raise PluginError(f"starts named a start {start.name!r}: expected letters and digits")
        seen.add((start.task_id, start.name))
    return starts


def works(
    tasks: Sequence[TaskToRun], options: RunOptions, step: int, starts: Sequence[Start]
) -> Iterator[Work]:
    """The episodes of one step, rollouts of a start side by side."""
    by_id = {ready.task.id: ready for ready in tasks}
    for start in starts:
        for rollout in range(start.rollouts):
            where = (start.task_id, start.name) if start.name else (start.task_id,)
            seed = derive_seed(options.seed, step, *where, rollout)
            ready = by_id[start.task_id]
            yield Work(step=step, ready=ready, start=start, rollout=rollout, seed=seed)


def evaluation_works(
    tasks: Sequence[TaskToRun], seed: int, rollouts: int, step: int
) -> Iterator[Work]:
    """The episodes of one evaluation; each time with the same seeds, so that less differs."""
    for ready in tasks:
        for rollout in range(rollouts):
            yield Work(
                split="evaluation",
                step=step,
                ready=ready,
                start=Start(task_id=ready.task.id, rollouts=rollouts),
                rollout=rollout,
                seed=derive_seed(seed, "evaluation", ready.task.id, rollout),
            )


def tasks_of_step(
    tasks: Sequence[TaskToRun], options: RunOptions, step: int
) -> Sequence[TaskToRun]:
    """All tasks, or the next `tasks_per_step` of a shuffled round through all of them.

    No task is drawn twice in a round, and so in a step; those left at a round's end, too few for
    a step, are passed over. The order depends on the seed alone.
    """
    size = tasks_per_step(tasks, options)
    if size == len(tasks):
        return tasks
    epoch, place = divmod(step, len(tasks) // size)
    order = _order(len(tasks), derive_seed(options.seed, epoch, "order"))
    return [tasks[number] for number in order[place * size : (place + 1) * size]]


def tasks_per_step(tasks: Sequence[TaskToRun], options: RunOptions) -> int:
    """How many tasks a step draws: what the config says, and never more than there are."""
    wanted = options.tasks_per_step
    return len(tasks) if wanted is None else min(wanted, len(tasks))


def _order(n: int, seed: int) -> list[int]:
    order = list(range(n))
    random.Random(seed).shuffle(order)  # noqa: S311 - not a secret
    return order


def derive_seed(*parts: object) -> int:
    """A seed below 2**53 (so that JSON readers keep it) from anything that has a text form."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 11
