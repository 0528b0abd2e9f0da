"""Means over tasks of values in [0, 1], such as pass@k, with their interval."""

import math
import statistics
from collections.abc import Iterable, Sequence

from attrs import frozen

from ale.intervals import success_interval
from ale_figures.statistics.attempts import Attempts


def interval(values: Sequence[float], trials: float = 1) -> tuple[float, float] | None:
    """95% interval for a mean over tasks of values in [0, 1]: `ale.intervals.success_interval`.

    Args:
        values: one per task.
        trials: how many independent passes or failures the value of a task stands for. With one,
            this is Wilson's interval with each task as a trial, which is conservative for values
            between 0 and 1.

    Returns:
        Bounds in [0, 1]; None for fewer than two tasks.
    """
    if len(values) < 2:
        return None
    return success_interval((trials, value * trials) for value in values)


@frozen(kw_only=True)
class MeanOverTasks:
    """A mean of values in [0, 1], one per task."""

    tasks: int
    """Tasks that have a value."""
    mean: float | None
    """None for no task."""
    interval: tuple[float, float] | None
    """95%; see `interval`."""


def mean_over_tasks(values: Iterable[float | None], trials: float = 1) -> MeanOverTasks:
    """The mean over the tasks that have a value, with its interval.

    Args:
        values: one in [0, 1] per task; None leaves the task out.
        trials: as for `interval`.
    """
    known = [value for value in values if value is not None]
    if not known:
        return MeanOverTasks(tasks=0, mean=None, interval=None)
    mean = math.fsum(known) / len(known)
    return MeanOverTasks(tasks=len(known), mean=mean, interval=interval(known, trials))


def mean_pass_at(attempts: Iterable[Attempts], k: int) -> MeanOverTasks:
    """Mean pass@k over the tasks that have k attempts.

    pass@k of a task with n attempts varies no more than n / k independent passes or failures do
    (Hoeffding, 1948, A class of statistics with asymptotically normal distribution, Ann. Math.
    Stat. 19), so that many trials the interval counts at most; where n differs, their harmonic
    mean.
    """
    enough = [each for each in attempts if each.n >= k]
    trials = statistics.harmonic_mean([each.n / k for each in enough]) if enough else 1
    return mean_over_tasks((each.pass_at(k) for each in enough), trials)
