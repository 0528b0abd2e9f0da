"""Means of independent values with their 95% intervals, by Student's t."""

import math
from collections.abc import Sequence
from functools import cache

from attrs import frozen

_LEVEL = 0.95
_ROUNDING = 1e-12
"""Values that differ by no more than this, absolutely or relatively, are equal."""


@frozen(kw_only=True)
class Estimate:
    """A mean of independent values, such as one per seed or one per task."""

    n: int
    mean: float
    low: float | None = None
    """None for n = 1: one value has no spread."""
    high: float | None = None

    def within(self, least: float, most: float) -> "Estimate":
        """The same, with bounds no further than the quantity itself can be."""
        if self.low is None or self.high is None:
            return self
        return Estimate(
            n=self.n, mean=self.mean, low=max(least, self.low), high=min(most, self.high)
        )


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and two-sided 95% interval: mean +- t(0.975, n - 1) * s / sqrt(n).

    Args:
        values: one per seed or task, taken as independent draws of a normal distribution.

    Returns:
        None for no values; without bounds for one.

    Source: Student (1908), The probable error of a mean, Biometrika 6.
    """
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(n=1, mean=mean)
    if math.isclose(min(values), max(values), rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        return Estimate(n=n, mean=mean, low=mean, high=mean)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return Estimate(n=n, mean=mean, low=mean - half, high=mean + half)


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
