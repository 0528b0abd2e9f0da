"""The kit for credit schemes passes a right one and fails wrong ones, each for its own reason."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import pytest

from ale.testing.builders import trajectory, turn
from ale.testing.credit import (
    CreditContract,
    agreement,
    assert_credits,
    group_of,
    known_worth,
    rollout,
)
from ale.types import Credit, Group, replace

Assign = Callable[[Group], Sequence[Credit]]


def _right(group: Group) -> list[Credit]:
    credits = []
    for one in group.rollouts:
        values = (one.episode.reward or 0.0,) * len(one.chunks)
        credits.append(
            Credit(
                episode_id=one.episode.id,
                scheme="same",
                rewards=values,
                returns=values,
                weights=values,
                skipped=None if any(values) else "nothing earned",
            )
        )
    return credits


class Same:
    """The reward to every chunk, spoiled by `change`."""

    def __init__(self, change: Assign = _right) -> None:
        self._change = change

    def assign(self, group: Group) -> Sequence[Credit]:
        return self._change(group)


class TestARightScheme(CreditContract):
    @pytest.fixture
    def scheme(self) -> Same:
        return Same()


def _each(**changes: object) -> Same:
    return Same(lambda group: [replace(credit, **changes) for credit in _right(group)])


LARGE_SEED = 0
"""A seed of the kit whose group has several rollouts, some of them successes."""
TURNS = trajectory(turn("a"), turn("b"))
SAMPLE = group_of([rollout(1.0, TURNS, 0), rollout(0.0, TURNS, 1)])


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        (Same(lambda group: _right(group)[1:]), "not one credit per rollout"),
        (Same(lambda group: _right(group)[::-1]), "not one credit per rollout"),
        (_each(episode_id="other"), "not one credit per rollout"),
        (_each(scheme=""), "does not name its scheme"),
        (_each(weights=()), "weights: not one per chunk"),
        (_each(returns=(1.0,)), "returns: not one per chunk"),
        (_each(rewards=[1.0, 1.0]), "rewards is not a tuple"),
        (_each(weights=(math.nan, 0.0)), "weights: not finite"),
        (_each(weights=(math.inf, 0.0)), "weights: not finite"),
        (_each(weights=("1", "2")), "weights: not numbers"),
        (_each(skipped="because"), "skipped, but with weights"),
    ],
)
def test_the_kit_fails_credits_of_the_wrong_shape(scheme: Same, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert_credits(SAMPLE, scheme.assign(SAMPLE))
    with pytest.raises(AssertionError):
        CreditContract().test_every_chunk_of_every_rollout_is_credited(scheme, LARGE_SEED)


def test_the_kit_fails_a_scheme_that_divides_by_an_empty_spread() -> None:
    def normalise(group: Group) -> Sequence[Credit]:
        rewards = [one.episode.reward or 0.0 for one in group.rollouts]
        spread = max(rewards, default=0.0) - min(rewards, default=0.0)
        factor = math.inf if spread == 0.0 else 1 / spread
        return [
            replace(credit, weights=tuple(weight * factor for weight in credit.weights))
            for credit in _right(group)
        ]

    with pytest.raises(AssertionError, match="not finite"):
        CreditContract().test_a_group_of_equal_rewards_is_credited(Same(normalise), 1.0)
    with pytest.raises(AssertionError, match="not finite"):
        CreditContract().test_a_group_of_one_is_credited(Same(normalise), 1.0)


def test_the_kit_fails_a_scheme_that_compares_nothing_though_it_says_so() -> None:
    class Declared(Same):
        compares_rollouts: Literal[True] = True

    with pytest.raises(AssertionError, match="compares rollouts, but credits one alone"):
        CreditContract().test_a_group_of_one_is_credited(Declared(), 1.0)


def test_the_kit_fails_a_scheme_that_looks_at_the_order() -> None:
    def by_place(group: Group) -> Sequence[Credit]:
        return [
            replace(
                credit, weights=tuple(weight + place for weight in credit.weights), skipped=None
            )
            for place, credit in enumerate(_right(group))
        ]

    with pytest.raises(AssertionError):
        CreditContract().test_the_order_of_the_rollouts_changes_no_credit(Same(by_place), 0)


def test_the_kit_fails_a_scheme_that_cannot_take_an_episode_without_chunks() -> None:
    def last_first(group: Group) -> Sequence[Credit]:
        for one in group.rollouts:
            one.chunks[-1]
        return _right(group)

    with pytest.raises(IndexError):
        CreditContract().test_an_episode_without_chunks_is_credited(Same(last_first))


def test_the_kit_fails_a_scheme_that_remembers() -> None:
    seen: list[float] = []

    def running(group: Group) -> Sequence[Credit]:
        seen.append(0.0)
        return [replace(credit, scheme=f"run {len(seen)}") for credit in _right(group)]

    with pytest.raises(AssertionError):
        CreditContract().test_assigning_again_gives_the_same_whatever_came_between(Same(running))


def test_the_kit_fails_a_scheme_that_changes_its_input() -> None:
    def spoil(group: Group) -> Sequence[Credit]:
        credits = _right(group)
        object.__setattr__(group, "rollouts", group.rollouts[1:])
        return credits

    with pytest.raises(AssertionError):
        CreditContract().test_assigning_leaves_the_group_as_it_was(Same(spoil))


def _knowing(shift: int) -> Same:
    """The exact worth of each chunk, or that of another chunk of the episode."""
    _, values = known_worth(rollouts=100_000, seed=0)

    def assign(group: Group) -> list[Credit]:
        found = []
        for credit in _right(group):
            each = values.episodes[credit.episode_id]
            v = [won / n for won, n in zip(each.successes, each.trials, strict=True)]
            worth = [b - a for a, b in pairwise(v)]
            found.append(replace(credit, weights=(*worth[shift:], *worth[:shift])))
        return found

    return Same(assign)


def test_credit_of_whole_episodes_orders_their_chunks_by_chance() -> None:
    found = agreement(Same())
    assert found.order.value == 0.5
    assert found.pearson.value < 0.6


def test_the_worth_itself_agrees_and_one_chunk_further_it_does_not() -> None:
    right, shifted = agreement(_knowing(0)), agreement(_knowing(1))
    assert right.order.value > 0.88
    assert right.pearson.value > 0.85
    assert shifted.order.value < 0.6
    assert shifted.pearson.high < right.pearson.low
