"""The exact test and its correction against published or enumerated numbers."""

import itertools
import math
import random

import pytest

from ale_figures.statistics import holm, least_p, sign_flip

MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Darwin's plants, crossed less self-fertilised, in eighths of an inch: Fisher (1935), 21."""


def test_fishers_test_of_darwins_plants() -> None:
    """Of the 32768 choices of signs 863 give as large a sum, and as many as small a one."""
    assert sign_flip(MAIZE) == 2 * 863 / 32768


@pytest.mark.parametrize(
    "differences", [[0.1, 0.2, -0.05], [0.25, 0.25, 0.25, -0.25], [0.0, 0.3, 0.1], [1 / 3] * 5]
)
def test_p_is_the_share_of_signs_with_a_sum_as_far_from_0(differences: list[float]) -> None:
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = sum(each >= abs(sum(differences)) - 1e-9 for each in sums) / len(sums)
    assert sign_flip(differences) == expected


def test_the_smallest_p_is_that_of_equal_signs() -> None:
    assert sign_flip([0.1, 0.2, 0.4, 0.3, 0.15]) == least_p(5) == 0.0625
    assert least_p(6) == 0.03125
    assert sign_flip([]) == least_p(0) == 1.0
    assert sign_flip([0.0, 0.0]) == 1.0


def test_many_pairs_are_counted_exactly() -> None:
    """200 tasks: 60 won, 40 lost, the rest alike. Binomial: 2 * P(X >= 60 of 100) = 0.0569."""
    differences = [1.0] * 60 + [-1.0] * 40 + [0.0] * 100
    assert sign_flip(differences) == pytest.approx(0.0568879, abs=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1])
def test_where_too_many_sums_differ_p_is_near_that_of_random_signs(shift: float) -> None:
    """As of 164 tasks with pass@4 of 16 attempts each; against 20,000 random choices of signs."""
    chance = random.Random(3)
    differences = [math.cos(i) + shift for i in range(164)]
    found = abs(math.fsum(differences))
    extreme = 0
    for _ in range(20_000):
        flipped = (d if chance.random() < 0.5 else -d for d in differences)
        extreme += abs(math.fsum(flipped)) >= found - 1e-12
    assert sign_flip(differences) == pytest.approx(extreme / 20_000, abs=0.015)


def test_holms_correction_computed_manually() -> None:
    """0.01 * 4, 0.02 * 3, 0.03 * 2; the last is not below the one before it."""
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx((0.06, 0.04, 0.9, 0.06))
    assert holm([0.5, 0.6]) == (1.0, 1.0)
    assert holm([]) == ()
