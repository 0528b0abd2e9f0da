"""Counts the attempts of a run by task, and estimates from such counts; a library."""

from ale_statistics.attempts import Attempts, attempts_from, count_attempts
from ale_statistics.means import Estimate, estimate
from ale_statistics.passing import MeanOverTasks, interval, mean_over_tasks, pass_at_k

__all__ = [
    "Attempts",
    "Estimate",
    "MeanOverTasks",
    "attempts_from",
    "count_attempts",
    "estimate",
    "interval",
    "mean_over_tasks",
    "pass_at_k",
]
