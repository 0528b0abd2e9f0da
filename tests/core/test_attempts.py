"""pass@k and majorities against what is enumerated."""

import itertools

import pytest

from ale.attempts import Repeats, mean, pass_at_k, repeats


@pytest.mark.parametrize(("n", "c", "k"), list(itertools.product([4], range(5), [1, 2, 3, 4])))
def test_pass_at_k_is_the_share_of_choices_with_a_pass(n: int, c: int, k: int) -> None:
    choices = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_fewer_attempts_than_k_give_no_pass_at_k() -> None:
    assert pass_at_k(2, 2, 3) is None
    assert pass_at_k(0, 0, 1) is None


@pytest.mark.parametrize(("n", "c", "k"), [(2, 3, 1), (2, -1, 1), (2, 1, 0)])
def test_impossible_numbers_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)


def test_the_majority_of_a_tasks_samples_is_more_than_half_of_them() -> None:
    """Of four samples each: none, two and three succeed; pass@4 is 0, 1 and 1."""
    found = repeats([(4, 0), (4, 2), (4, 3)])
    assert found == Repeats(k=4, pass_at_k=2 / 3, majority=1 / 3)


def test_k_is_what_every_graded_task_has() -> None:
    """Of three samples one was broken: pass@2 of (3, 1) is 2/3."""
    assert repeats([(3, 1), (2, 2), (0, 0)]) == Repeats(
        k=2, pass_at_k=pytest.approx(5 / 6), majority=0.5
    )
    assert repeats([(3, 1), (1, 1)]) is None
    assert repeats([]) is None


def test_large_rewards_have_a_mean() -> None:
    assert mean([1e308, 1e308, 1e308]) == 1e308
    assert mean([1e308, -1e308]) == 0.0
    assert mean([0.1] * 10) == 0.1
