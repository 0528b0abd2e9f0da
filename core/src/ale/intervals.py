"""95% intervals for success rates, of single trials and of several attempts at each task."""

import math
from collections.abc import Iterable
from functools import cache

Z95 = 1.959964
"""Two-sided 95% point of the normal distribution."""
_LEVEL = 0.95


class Rate(float):
    """A success rate, 0 to 1, with the number of attempts and the 95% interval."""

    n: int
    """Number of graded attempts."""
    interval: tuple[float, float]
    """As `success_interval`."""

    @classmethod
    def of(cls, attempts: Iterable[tuple[int, int]]) -> "Rate | None":
        """The rate of attempts, given as to `success_interval`; None if none is graded."""
        counts = [*attempts]
        n = sum(graded for graded, _ in counts)
        if not n:
            return None
        rate = cls(sum(won for _, won in counts) / n)
        rate.n, rate.interval = n, success_interval(counts)
        return rate


def wilson(successes: float, n: float) -> tuple[float, float]:
    """95% interval for a success rate.

    Args:
        successes: 0 to n; may be fractional, as a sum of n values in [0, 1] is.
        n: number of independent trials, above 0; may be fractional, as an effective number is.

    Returns:
        Lower and upper bound, in [0, 1].

    Source: Wilson (1927), Probable inference, J. Am. Stat. Assoc. 22.
    """
    rate = successes / n
    middle = rate + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(rate * (1 - rate) / n + Z95**2 / (4 * n * n))
    scale = 1 + Z95**2 / n
    return (max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale))


def success_interval(attempts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """95% interval for the success rate on tasks like these, with several attempts at each.

    Attempts at one task resemble each other, so they count for less than as many tasks. The
    interval is Wilson's with the effective number of trials: that of independent ones whose rate
    varies as much as this one does from task to task. It is at least the number of tasks (of which
    each is then one trial), and at most that of attempts. With one attempt at each task this is
    `wilson`; and for a single task too, where the interval is about this task alone.

    Args:
        attempts: of each task, how many were graded and how many of them succeeded; may be
            fractional. Tasks without a graded one are left out.

    Returns:
        Lower and upper bound, in [0, 1].

    Raises:
        ValueError: no attempt is graded.

    Source: Korn and Graubard (1998), Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data, Survey Methodology 24: the effective
    number from the variance between clusters, corrected by Student's t for few clusters. With
    Wilson's interval: Franco et al. (2019), Comparative study of confidence intervals for
    proportions in complex sample surveys, J. Surv. Stat. Methodol. 7.
    """
    graded = [(n, won) for n, won in attempts if n]
    trials = math.fsum(n for n, _ in graded)
    if not trials:
        raise ValueError("no attempt is graded")
    rate = math.fsum(won for _, won in graded) / trials
    n = _effective(graded, trials, rate)
    return wilson(rate * n, n)


def _effective(graded: list[tuple[float, float]], trials: float, rate: float) -> float:
    """The effective number of trials."""
    tasks = len(graded)
    if tasks == 1:
        return trials
    # As many as tasks where all have equally many attempts (Kish, 1965, Survey Sampling, 11.7).
    least = trials**2 / math.fsum(n * n for n, _ in graded)
    if not 0 < rate < 1:
        return least
    squares = math.fsum((won - rate * n) ** 2 for n, won in graded)
    variance = tasks / (tasks - 1) * squares / trials**2
    known = rate * (1 - rate) * (Z95 / t_quantile(tasks - 1)) ** 2
    return trials if variance * trials <= known else max(least, known / variance)


@cache
def t_quantile(df: int) -> float:
    """The value that a t-distributed number exceeds in size in 5% of cases.

    Args:
        df: degrees of freedom, at least 1.

    Raises:
        ValueError: df below 1.
    """
    if df < 1:
        raise ValueError(f"degrees of freedom are at least 1, not {df}")
    low, high = 0.0, 16.0  # of df = 1 it is 12.7
    for _ in range(60):
        middle = (low + high) / 2
        if _within(middle, df) < _LEVEL:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _within(t: float, df: int) -> float:
    """The probability of a number between -t and t.

    Source: Abramowitz and Stegun (1964), Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    theta = math.atan2(t, math.sqrt(df))
    cosine, total, term = math.cos(theta), 0.0, 1.0
    if df % 2:
        term = cosine
        for k in range(1, df - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        return 2 / math.pi * (theta + math.sin(theta) * total)
    for k in range(0, df - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    return math.sin(theta) * total
