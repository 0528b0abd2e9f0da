"""Means of independent values with their 95% intervals, by Student's t."""

import math
from collections.abc import Sequence

from attrs import frozen

from ale.intervals import t_quantile

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
    if abs(mean) <= _ROUNDING:
        mean = 0.0  # as of differences that cancel: its sign would be an accident
    if n == 1:
        return Estimate(n=1, mean=mean)
    if math.isclose(min(values), max(values), rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        return Estimate(n=n, mean=mean, low=mean, high=mean)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return Estimate(n=n, mean=mean, low=mean - half, high=mean + half)
