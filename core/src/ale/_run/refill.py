"""Dynamic sampling: further tasks in a step replace those whose rewards are all equal.

A group of equal rewards has no advantage, so a step with many of them is a small batch. DAPO
(arXiv:2503.14476, 3.2) samples until the batch is full of groups with an advantage; here the number
of rounds is bounded.
"""

import random
from collections.abc import Iterator, Sequence

from ale._config import RunConfig
from ale._run.parts import PreparedTask
from ale._run.plan import derive_seed
from ale._store.groups import GroupKey
from ale._store.index import Index
from ale.errors import Problem
from ale.protocols import Start


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
