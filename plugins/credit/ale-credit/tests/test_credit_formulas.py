"""The formulas on numbers that can be checked by hand."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from ale_credit.advantages import group_normalised, leave_one_out, mean_centred
from ale_credit.returns import (
    less_penalties,
    overlong_penalty,
    position_weights,
    returns_to_go,
    terminal_rewards,
)


def discounted_returns(reward: float, n_chunks: int, gamma: float) -> tuple[float, ...]:
    """Eq. 7 with j = K, as the scheme `ipa` has it."""
    return returns_to_go(terminal_rewards(reward, n_chunks), gamma)


def test_credit_grows_towards_the_last_chunk() -> None:
    assert discounted_returns(1.0, n_chunks=3, gamma=0.5) == (0.25, 0.5, 1.0)


def test_returns_of_a_failure_with_a_reward_of_minus_one_mirror_those_of_a_success() -> None:
    assert discounted_returns(-1.0, n_chunks=3, gamma=0.5) == (-0.25, -0.5, -1.0)


def test_the_last_chunk_gets_the_whole_reward_whatever_gamma_is() -> None:
    assert [discounted_returns(0.7, 4, gamma)[-1] for gamma in (1e-300, 0.5, 1.0)] == [0.7] * 3


def test_without_discount_every_chunk_gets_the_same() -> None:
    assert discounted_returns(0.3, n_chunks=5, gamma=1.0) == (0.3,) * 5


def test_a_vanishing_gamma_leaves_only_the_last_chunk() -> None:
    assert discounted_returns(1.0, n_chunks=3, gamma=5e-324) == (0.0, 5e-324, 1.0)


def test_no_reward_no_return() -> None:
    assert discounted_returns(0.0, n_chunks=3, gamma=0.9) == (0.0, 0.0, 0.0)


def test_no_chunks_no_returns() -> None:
    assert terminal_rewards(1.0, 0) == ()
    assert discounted_returns(1.0, n_chunks=0, gamma=0.9) == ()
    assert position_weights(0, None) == position_weights(0, 0.5) == ()


@pytest.mark.parametrize("gamma", [0.0, -0.5, 1.5, math.nan, math.inf])
def test_gamma_outside_its_range_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        returns_to_go((1.0,), gamma)


def test_returns_of_rewards_per_chunk() -> None:
    # 4; 2 + 4/2; 1 + (2 + 4/2)/2
    assert returns_to_go((1.0, 2.0, 4.0), gamma=0.5) == (3.0, 4.0, 4.0)


@pytest.mark.parametrize("seed", range(20))
def test_rewards_per_chunk_reduce_to_eq_7_where_only_the_last_is_not_0(seed: int) -> None:
    rng = random.Random(seed)
    reward, k, gamma = rng.uniform(-1, 1), rng.randint(1, 50), rng.uniform(0.1, 1)
    eq_7 = [gamma ** (k - j) * reward for j in range(1, k + 1)]
    assert returns_to_go(terminal_rewards(reward, k), gamma) == pytest.approx(eq_7, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_returns_are_the_sums_of_discounted_rewards(seed: int) -> None:
    rng = random.Random(seed)
    rewards = [rng.uniform(-1, 1) for _ in range(rng.randint(1, 30))]
    gamma = rng.uniform(0.1, 1)
    sums = [
        math.fsum(gamma ** (j - k) * rewards[j] for j in range(k, len(rewards)))
        for k in range(len(rewards))
    ]
    assert returns_to_go(rewards, gamma) == pytest.approx(sums, rel=1e-9, abs=1e-12)


def test_position_weights() -> None:
    assert position_weights(4, None) == (0.25, 0.5, 0.75, 1.0)
    assert position_weights(4, 0.5) == (0.125, 0.25, 0.5, 1.0)


@pytest.mark.parametrize("decay", [None, 0.9])
def test_position_weights_grow_strictly(decay: float | None) -> None:
    weights = position_weights(5_000, decay)
    assert all(before < after for before, after in pairwise(weights))


def test_each_failed_call_lowers_its_own_chunk() -> None:
    assert less_penalties((0.0, 0.0, 1.0), (0, 2, 1), 0.25) == (0.0, -0.5, 0.75)


def test_mean_centred() -> None:
    assert mean_centred((1.0, 0.0, 0.0, 1.0)) == (0.5, -0.5, -0.5, 0.5)


def test_leave_one_out() -> None:
    # 1 - (0 + 0)/2; 0 - (1 + 0)/2
    assert leave_one_out((1.0, 0.0, 0.0)) == (1.0, -0.5, -0.5)


def test_group_normalised_by_the_sample() -> None:
    # mean 2, squares 2, divided by n - 1 = 2: std 1
    assert group_normalised((1.0, 2.0, 3.0), "sample", 1e-12) == pytest.approx((-1.0, 0.0, 1.0))


def test_group_normalised_by_the_population() -> None:
    # mean 1/2, squares 1, divided by n = 4: std 1/2
    found = group_normalised((1.0, 0.0, 0.0, 1.0), "population", 1e-12)
    assert found == pytest.approx((1.0, -1.0, -1.0, 1.0))


def test_eps_is_added_to_the_standard_deviation() -> None:
    assert group_normalised((1.0, 0.0), "population", 0.5) == (0.5, -0.5)


def test_leave_one_out_is_mean_centred_times_n_over_n_minus_1() -> None:
    rewards = (1.0, 0.25, 0.0, 0.5, 0.0)
    scaled = [value * 5 / 4 for value in mean_centred(rewards)]
    assert leave_one_out(rewards) == pytest.approx(scaled)


@pytest.mark.parametrize(("advantages", "share"), [(leave_one_out, 1.0), (mean_centred, 2 / 3)])
def test_the_expected_gradient_of_three_rollouts_is_the_policy_gradient_or_a_share_of_it(
    advantages: Callable[[Sequence[float]], Sequence[float]], share: float
) -> None:
    """Of a softmax over three answers, over all groups: an unbiased baseline changes nothing.

    d log p(a) / d logit(j) is [a = j] - p(j), and d E[R] / d logit(j) is p(j) (R(j) - E[R]).
    """
    chances, rewards, n = (0.6, 0.3, 0.1), (0.0, 0.25, 1.0), 3
    mean = sum(p * r for p, r in zip(chances, rewards, strict=True))
    for j, (chance, reward) in enumerate(zip(chances, rewards, strict=True)):
        found = 0.0
        for group in itertools.product(range(len(chances)), repeat=n):
            weights = advantages([rewards[a] for a in group])
            scores = [float(a == j) - chance for a in group]
            probability = math.prod(chances[a] for a in group)
            found += probability * sum(w * s for w, s in zip(weights, scores, strict=True)) / n
        assert found == pytest.approx(share * chance * (reward - mean))


@pytest.mark.parametrize("rewards", [(), (1.0,)])
def test_one_reward_has_no_others_and_no_sample_deviation(rewards: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="two"):
        leave_one_out(rewards)
    with pytest.raises(ValueError, match="two"):
        group_normalised(rewards, "sample", 1e-6)


@pytest.mark.parametrize(
    ("n_tokens", "penalty"),
    [(0, 0.0), (60, 0.0), (70, -0.25), (80, -0.5), (100, -1.0), (999, -1.0)],
)
def test_an_episode_is_punished_linearly_over_the_buffer_before_the_limit(
    n_tokens: int, penalty: float
) -> None:
    assert overlong_penalty(n_tokens, limit=100, buffer=40) == penalty
