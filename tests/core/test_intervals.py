"""Intervals of success rates against published numbers, and their coverage in simulations."""

import random
from collections.abc import Callable, Sequence

import pytest

from ale.intervals import success_interval, t_quantile, wilson

Attempts = Sequence[tuple[int, int]]


def test_the_interval_of_single_trials_is_wilsons() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 5)[0] == 0.0


@pytest.mark.parametrize("succeeded", range(7))
def test_one_attempt_at_each_task_is_one_trial(succeeded: int) -> None:
    attempts = [(1, int(i < succeeded)) for i in range(6)]
    assert success_interval(attempts) == wilson(succeeded, 6)


@pytest.mark.parametrize(
    ("attempts", "n"),
    [
        ([(8, 8), (8, 8), (8, 8)], 3),  # all succeed: nothing shows that attempts differ
        ([(8, 0), (8, 0), (8, 0)], 3),
        ([(8, 8), (8, 0), (8, 8)], 3),  # a task decides it
        ([(8, 4), (8, 4), (8, 4)], 24),  # tasks do not differ at all
        ([(8, 3)], 8),  # a single task: about this task alone
        ([(1, 1)], 1),
        ([(6, 6), (2, 2), (0, 0)], 1.6),  # 8^2 / (6^2 + 2^2)
    ],
)
def test_attempts_count_as_their_variance_over_tasks_says(attempts: Attempts, n: float) -> None:
    rate = sum(won for _, won in attempts) / sum(n for n, _ in attempts)
    assert success_interval(attempts) == pytest.approx(wilson(rate * n, n))


def test_an_interval_computed_manually() -> None:
    """Rates of 12 tasks: 1, 1/2, 0 and 1/2, three times.

    The variance of a task's rate is (6 / 4) / 11, of their mean (6 / 4) / 11 / 12, as of
    (1 / 4) / (1 / 88) = 22 independent trials. With 11 degrees of freedom, t is 2.201.
    """
    n = 22 * (1.959964 / 2.200985) ** 2
    attempts = [(4, 4), (4, 2), (4, 0), (4, 2)] * 3
    assert success_interval(attempts) == pytest.approx(wilson(n / 2, n), abs=1e-6)


def test_no_graded_attempt_has_no_interval() -> None:
    with pytest.raises(ValueError, match="no attempt is graded"):
        success_interval([(0, 0)])


def independent(attempts: Attempts) -> tuple[float, float]:
    """The control: each attempt counts as a trial of its own."""
    return wilson(sum(won for _, won in attempts), sum(n for n, _ in attempts))


def coverage(
    interval: Callable[[Attempts], tuple[float, float]], tasks: int, shape: float
) -> float:
    """How often an interval has the mean of the distribution that tasks are drawn from.

    Their success rates are drawn from a symmetric beta distribution, and then 8 attempts at each.
    """
    chance, n, held = random.Random(7), 2000, 0
    for _ in range(n):
        rates = [chance.betavariate(shape, shape) for _ in range(tasks)]
        drawn = [(8, sum(chance.random() < rate for _ in range(8))) for rate in rates]
        low, high = interval(drawn)
        held += low <= 0.5 <= high
    return held / n


@pytest.mark.parametrize(("tasks", "shape"), [(5, 0.5), (10, 1.0), (40, 0.5), (40, 5.0)])
def test_the_interval_covers_where_attempts_at_a_task_resemble_each_other(
    tasks: int, shape: float
) -> None:
    assert coverage(success_interval, tasks, shape) == pytest.approx(0.95, abs=0.02)
    assert coverage(independent, tasks, shape) < 0.91


def test_independent_attempts_are_not_taken_for_much_less() -> None:
    assert coverage(success_interval, 40, 1e6) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("df", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (29, 2.045)],
)
def test_t_is_that_of_the_printed_tables(df: int, expected: float) -> None:
    assert t_quantile(df) == pytest.approx(expected, abs=5e-4)


def test_t_approaches_the_normal_quantile_and_refuses_zero_degrees_of_freedom() -> None:
    assert t_quantile(10_000) == pytest.approx(1.960, abs=5e-4)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        t_quantile(0)
