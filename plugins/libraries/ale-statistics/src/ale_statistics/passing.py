"""Means over tasks of values in [0, 1], such as pass@k, with their interval."""

import math
from collections.abc import Iterable

from attrs import frozen

from ale.text import wilson


def interval(mean: float, tasks: int) -> tuple[float, float] | None:
    """95% interval for a mean over tasks of values in [0, 1], each task one independent trial.

    The variance of such values is at most that of passes and failures with the same mean, so
    Wilson's interval is conservative.

    Returns:
        Bounds in [0, 1]; None for fewer than two tasks.

    Source: Wilson (1927), Probable inference, J. Am. Stat. Assoc. 22.
    """
    return wilson(mean * tasks, tasks) if tasks >= 2 else None


@frozen(kw_only=True)
class MeanOverTasks:
    """A mean of values in [0, 1], one per task."""

    tasks: int
    """Tasks that have a value."""
    mean: float | None
    """None for no task."""
    interval: tuple[float, float] | None
    """95%; see `interval`."""


def mean_over_tasks(values: Iterable[float | None]) -> MeanOverTasks:
    """The mean over the tasks that have a value, with its interval.

    Args:
        values: one in [0, 1] per task, such as its pass@k; None leaves the task out.
    """
    known = [value for value in values if value is not None]
    if not known:
        return MeanOverTasks(tasks=0, mean=None, interval=None)
    mean = math.fsum(known) / len(known)
    return MeanOverTasks(tasks=len(known), mean=mean, interval=interval(mean, len(known)))
