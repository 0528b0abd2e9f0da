"""Intervals of means against published or manually computed numbers."""

import pytest

from ale_figures.statistics import Estimate, estimate


def test_an_interval_computed_manually() -> None:
    """1, 2, 3, 4, 5: mean 3, s = sqrt(2.5), half width 2.776 * sqrt(2.5 / 5) = 1.963."""
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    assert (found.n, found.mean) == (5, 3.0)
    assert found.low == pytest.approx(3 - 1.963, abs=1e-3)
    assert found.high == pytest.approx(3 + 1.963, abs=1e-3)


def test_two_values_have_a_wide_interval() -> None:
    """0 and 1: mean 0.5, s = sqrt(0.5), half width 12.706 * 0.5."""
    found = estimate([0.0, 1.0])
    assert found is not None
    assert found.high == pytest.approx(0.5 + 6.353, abs=1e-3)
    assert found.within(0.0, 1.0) == Estimate(n=2, mean=0.5, low=0.0, high=1.0)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    assert estimate([0.25]) == Estimate(n=1, mean=0.25)
    assert estimate([0.25]).within(0.0, 1.0) == Estimate(n=1, mean=0.25)  # type: ignore[union-attr]
    assert estimate([]) is None


def test_values_that_agree_have_an_interval_of_width_0() -> None:
    assert estimate([0.5, 0.5, 0.5]) == Estimate(n=3, mean=0.5, low=0.5, high=0.5)


def test_values_that_differ_by_errors_of_rounding_alone_agree() -> None:
    for values in ([0.7] * 3, [0.1] * 6, [0.8 - 0.7, 0.9 - 0.8, 1.0 - 0.9]):
        found = estimate(values)
        assert found is not None
        assert found.low == found.mean == found.high


def test_differences_that_cancel_have_a_mean_of_0() -> None:
    third = 1 / 3
    before, after = [0.1, third, 0.7, 0.6], [third, 0.6, 0.1, 0.7]
    found = estimate([b - a for a, b in zip(before, after, strict=True)])
    assert found is not None
    assert found.mean == 0.0
