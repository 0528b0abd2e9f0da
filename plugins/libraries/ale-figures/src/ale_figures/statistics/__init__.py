"""Counts the attempts of a run by task, means with intervals, and exact tests; a library."""

from ale_figures.statistics.attempts import Attempts, attempts_from, count_attempts, is_attempt
from ale_figures.statistics.means import Estimate, estimate
from ale_figures.statistics.pairs import LEVEL, holm, least_p, sign_flip
from ale_figures.statistics.passing import MeanOverTasks, interval, mean_over_tasks, mean_pass_at

__all__ = [
    "LEVEL",
    "Attempts",
    "Estimate",
    "MeanOverTasks",
    "attempts_from",
    "count_attempts",
    "estimate",
    "holm",
    "interval",
    "is_attempt",
    "least_p",
    "mean_over_tasks",
    "mean_pass_at",
    "sign_flip",
]
