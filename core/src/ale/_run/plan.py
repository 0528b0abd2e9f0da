"""What is to be done: which tasks in which step, how often, from which seed."""

import hashlib
import random
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale._config import RunOptions
from ale._run.parts import TaskToRun
from ale._store import Key


@frozen(kw_only=True)
class Work:
    """One episode to run."""

    step: int
    ready: TaskToRun
    rollout: int
    seed: int

    @property
    def key(self) -> Key:
        """What it is, on disk too."""
        return (self.step, self.ready.task.id, self.rollout)

    @property
    def id(self) -> str:
        """A name that is the same in every run of the same config."""
        return f"{self.step}-{self.ready.task.id}-{self.rollout}"


def works(tasks: Sequence[TaskToRun], options: RunOptions, step: int) -> Iterator[Work]:
    """The episodes of one step, rollouts of a task side by side."""
    for ready in tasks_of_step(tasks, options, step):
        for rollout in range(options.rollouts):
            seed = derive_seed(options.seed, step, ready.task.id, rollout)
            yield Work(step=step, ready=ready, rollout=rollout, seed=seed)


def tasks_of_step(
    tasks: Sequence[TaskToRun], options: RunOptions, step: int
) -> Sequence[TaskToRun]:
    """All tasks, or the next `tasks_per_step` of a shuffled round through all of them.

    Every task is drawn once before any is drawn again; the order depends on the seed alone.
    """
    size = options.tasks_per_step
    if size is None:
        return tasks
    orders: dict[int, list[int]] = {}
    drawn = []
    for number in range(step * size, (step + 1) * size):
        epoch, position = divmod(number, len(tasks))
        if epoch not in orders:
            orders[epoch] = _order(len(tasks), derive_seed(options.seed, epoch, "order"))
        drawn.append(tasks[orders[epoch][position]])
    return drawn


def _order(n: int, seed: int) -> list[int]:
    order = list(range(n))
    random.Random(seed).shuffle(order)  # noqa: S311 - not a secret
    return order


def derive_seed(*parts: object) -> int:
    """A seed below 2**53 (so that JSON readers keep it) from anything that has a text form."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 11
