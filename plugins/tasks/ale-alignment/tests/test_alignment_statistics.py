"""Each statistic on data with a known answer, and on a control in which there is nothing."""

import math
from random import Random

import pytest

from ale_alignment.statistics import (
    MOST_PAIRS,
    Statistic,
    correlation,
    jaccard,
    n_grams,
    overlap,
    sample,
    trend,
)

FEW = 399


def test_r_is_that_of_the_residuals() -> None:
    # Task t: residuals -1, 1 and -2, 2; task u: -1, 1 and 1, -1. r = (4 - 2) / sqrt(4 * 10).
    pairs = [("t", 1.0, 0.0), ("t", 3.0, 4.0), ("u", 11.0, 9.0), ("u", 13.0, 7.0)]
    found = correlation(pairs, FEW)
    assert found.n == 4
    assert found.value == pytest.approx(2 / math.sqrt(40))
    # The sums of the four permutations are 6, 2, -2 and -6: two are at least 2.
    assert found.p == pytest.approx(0.5, abs=0.1)
    opposed = correlation([(group, a, -b) for group, a, b in pairs * 3], FEW)
    assert opposed.p is not None
    assert opposed.p > 0.5, "who disagrees does not collude"


def test_p_is_the_share_of_permutations() -> None:
    # Six different values in the same order: of 720 permutations, two have an |r| as large.
    pairs = [("t", float(i), float(i)) for i in range(6)]
    found = correlation(pairs, 7199)
    assert found.value == pytest.approx(1.0)
    assert found.p == pytest.approx(2 / 720, abs=0.003)


def collusion(shared: float, difficulty: float, seed: int = 0) -> Statistic:
    random = Random(seed)
    pairs = []
    for task in range(12):
        level = difficulty * random.random()
        for _ in range(6):
            common = shared * random.gauss(0, 1)
            one, other = (level + common + random.gauss(0, 1) for _ in range(2))
            pairs.append((task, one, other))
    return correlation(pairs, FEW)


def test_a_shared_secret_is_found_and_the_difficulty_of_tasks_is_not() -> None:
    colluding, apart = collusion(2.0, 0.0), collusion(0.0, 30.0)
    assert colluding.value is not None
    assert apart.value is not None
    assert colluding.value > 0.6
    assert colluding.p is not None
    assert colluding.p <= 0.01
    assert abs(apart.value) < 0.25
    assert apart.p is not None
    assert apart.p > 0.05


def test_nothing_is_found_more_often_than_the_level_says() -> None:
    found = [collusion(0.0, 30.0, seed).p for seed in range(60)]
    assert sum(p is not None and p <= 0.05 for p in found) <= 8  # Binomial(60, 0.05): p < 0.004


def test_equal_scores_and_single_episodes_have_no_correlation() -> None:
    assert correlation([("t", 1.0, 1.0), ("t", 1.0, 0.0)], FEW).value is None
    assert correlation([("t", 1.0, 1.0), ("u", 0.0, 0.0)], FEW) == Statistic(
        n=0, value=None, p=None
    )
    assert correlation([], FEW).value is None


def test_n_grams_are_of_words_and_without_the_goals() -> None:
    assert n_grams("One, two. THREE", n=2) == {"one two", "two three"}
    assert n_grams("one two three", n_grams("one two", n=2), n=2) == {"two three"}
    assert n_grams("one", n=2) == frozenset()


def test_jaccard_is_the_share_of_both_in_either() -> None:
    assert jaccard(frozenset("abc"), frozenset("bcd")) == 0.5
    assert jaccard(frozenset(), frozenset()) == 0.0


def texts(copied: bool) -> Statistic:
    random = Random(3)

    def text() -> frozenset[str]:
        return n_grams(" ".join(random.choices("abcdefghij", k=40)), n=2)

    pairs = []
    for task in range(6):
        for _ in range(5):
            one = text()
            pairs.append((task, one, one if copied else text()))
    return overlap(pairs, FEW)


def test_copied_texts_are_found_and_texts_of_one_vocabulary_are_not() -> None:
    copied, apart = texts(True), texts(False)
    assert copied.value == 1.0
    assert copied.p == 1 / (FEW + 1)
    assert copied.by_chance is not None
    assert copied.by_chance < 0.6
    assert apart.value is not None
    assert 0 < apart.value < 0.5
    assert apart.p is not None
    assert apart.p > 0.05


def test_overlap_of_single_texts_has_no_p() -> None:
    found = overlap(
        [
            (t, frozenset(a), frozenset(b))
            for t, a, b in [("t", "ab", "a"), ("u", "a", "a"), ("v", "", "")]
        ],
        FEW,
    )
    assert (found.n, found.value, found.p) == (2, 0.75, None)


def test_the_slope_is_that_of_least_squares() -> None:
    found = trend({0: [0.0], 1: [1.0, 3.0], 2: [1.0], 4: [5.0]}, FEW)
    # Means 0, 2, 1, 5 at 0, 1, 2, 4: means 1.75 and 2, sxy = 10, sxx = 8.75.
    assert found.n == 4
    assert found.value == pytest.approx(10 / 8.75)


def gaps(drift: float) -> Statistic:
    random = Random(5)
    return trend(
        {step: [drift * step + random.gauss(0, 1) for _ in range(8)] for step in range(20)}, FEW
    )


def test_drift_is_found_and_noise_is_not() -> None:
    drifting, still = gaps(0.2), gaps(0.0)
    assert drifting.value == pytest.approx(0.2, abs=0.05)
    assert drifting.p is not None
    assert drifting.p <= 0.01
    assert still.value == pytest.approx(0.0, abs=0.05)
    assert still.p is not None
    assert still.p > 0.05


def test_two_times_and_equal_means_have_no_trend() -> None:
    assert trend({0: [0.0], 1: [9.0]}).value is None
    assert trend({0: [1.0], 1: [1.0], 2: [1.0]}).value is None


@pytest.mark.parametrize("rollouts", [1, 8, 50, 500])
def test_a_sample_is_of_blocks_of_one_group_and_bounded(rollouts: int) -> None:
    pairs = [(group, (group, i), (group, i)) for group in range(100) for i in range(rollouts)]
    found = sample(pairs)
    assert len(found) == min(MOST_PAIRS, len(pairs))
    assert len({one for _, one, _ in found}) == len(found)
    assert all(one == other for _, one, other in found)
    blocks: dict[object, list[int]] = {}
    for block, (group, _), _ in found:
        blocks.setdefault(block, []).append(group)
    assert all(len(set(groups)) == 1 for groups in blocks.values())
    assert max(map(len, blocks.values())) <= 8
    assert found == sample(pairs)
