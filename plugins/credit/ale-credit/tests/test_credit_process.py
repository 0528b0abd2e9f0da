"""Process rewards: the three forms, abstentions, and what shaping may not change."""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ale.testing.builders import trajectory, turn
from ale.testing.credit import group_of, rollout
from ale.types import Credit, Rollout, StepScore, replace
from ale_credit.options import StepScoresOptions
from ale_credit.process import StepScores

Values = Sequence[float | None]


def scored(reward: float, values: Values, number: int = 0) -> Rollout:
    one = rollout(reward, trajectory(*(turn(str(i)) for i in range(len(values)))), number)
    scores = [
        StepScore(abstained="off") if value is None else StepScore(value=value) for value in values
    ]
    return replace(one, scores={"s": tuple(scores)})


def credits(*episodes: tuple[float, Values], **options: Any) -> list[Credit]:
    made = [scored(reward, values, i) for i, (reward, values) in enumerate(episodes)]
    group = replace(group_of(made), rollouts=tuple(made))  # with their scores
    return list(StepScores(StepScoresOptions(scorer="s", **options)).assign(group))


def weights(*episodes: tuple[float, Values], **options: Any) -> list[list[float]]:
    return [[round(w, 12) for w in each.weights] for each in credits(*episodes, **options)]


def test_a_chunk_earns_what_it_adds_to_the_potential() -> None:
    # To go: R - Phi(s_k). Phi is 0 before the first chunk, then the score of the chunk before.
    found = weights((1.0, [0.25, 0.75, 0.5]), (0.0, [0.5, 0.5]))
    assert found == [[1.0, 0.75, 0.25], [0.0, -0.5]]
    found = weights((1.0, [0.25, 0.75, 0.5]), baseline="group")
    assert found == [[0.0, -0.25, -0.75]]
    found = weights((1.0, [0.25, 0.75, 0.5]))
    assert found == [[1.0, 0.75, 0.25]]
    (credit,) = credits((1.0, [0.25, 0.75, 0.5]), baseline="none")
    assert credit.rewards == (0.25, 0.5, 0.25)  # the last: R - 0.75


def test_with_lambda_0_a_chunk_earns_what_it_adds_itself() -> None:
    # The start is worth the mean of the first scores, 0.375; the last chunk adds R - Phi(s_K).
    found = weights((1.0, [0.25, 0.75, 0.5]), (0.0, [0.5, 0.5]), lam=0.0)
    assert found == [[-0.125, 0.5, 0.25], [0.125, -0.5]]
    found = weights((1.0, [0.25, 0.75, 0.5]), (0.0, [0.5, 0.5]), lam=0.5)
    assert found == [[0.1875, 0.625, 0.25], [-0.125, -0.5]]
    found = weights((1.0, [0.25, None, 0.5]), (0.0, [None, 0.5]), lam=0.0, gamma=0.5, process=2.0)
    # F = (0.125 - 0.25, 0.125 - 0.25, -0.25), and (0.125 - 0.25, -0.25); twice that, and R.
    assert found == [[-0.25, -0.25, 0.5], [-0.25, -0.5]]


def test_with_a_lambda_a_group_without_scores_is_credited_by_its_outcome() -> None:
    found = weights((1.0, [None, None]), (0.0, [None]), lam=0.0)
    assert found == [[0.5, 0.5], [-0.5]]


def test_a_lambda_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="'lam' is an option of form 'potential'"):
        StepScoresOptions(scorer="s", form="min", lam=0.5)


def test_an_abstention_leaves_the_potential_as_it_was() -> None:
    found = weights((0.0, [0.5, None, 0.75, 0.1]), baseline="none")
    assert found == [[0.0, -0.5, -0.5, -0.75]]


def test_the_sum_of_scores_is_less_the_mean_of_the_group_and_an_abstention_is_average() -> None:
    found = weights((1.0, [1.0, 0.5]), (0.0, [0.0, None, 0.5]), form="sum")
    # Mean of the four scores: 0.5. Outcome: +-0.5.
    assert found == [[1.0, 0.5], [-1.0, -0.5, -0.5]]


def test_more_chunks_of_the_same_score_earn_no_more() -> None:
    short, long = weights((1.0, [0.8] * 2), (1.0, [0.8] * 50), form="sum")
    assert {*short, *long} == {0.0}


def test_the_lowest_score_to_come_counts_in_the_min_form() -> None:
    found = weights((1.0, [0.75, 0.25, 1.0]), (0.0, [None, 0.75, None]), form="min", outcome=0.0)
    # Mean of the lowest of each: (0.25 + 0.75) / 2.
    assert found == [[-0.25, -0.25, 0.5], [0.25, 0.25, 0.0]]


def test_the_discount_holds_for_scores_and_outcome() -> None:
    (found,) = weights((1.0, [0.5, 0.5]), gamma=0.5, baseline="none")
    # F = (0.5 * 0.5 - 0, 0 - 0.5); to go (0.25 - 0.25, -0.5); outcome (0.5, 1).
    assert found == [0.5, 0.5]
    (found,) = weights((1.0, [0.5, 0.5]), gamma=0.5, baseline="none", process=2.0, outcome=0.0)
    assert found == [0.0, -1.0]


@pytest.mark.parametrize("form", ["potential", "sum", "min"])
def test_a_group_with_an_abstention_may_be_credited_by_its_outcome_or_skipped(form: str) -> None:
    episodes = ((1.0, [0.3, 0.9]), (0.0, [0.1, None]))
    outcome = [[0.5, 0.5], [-0.5, -0.5]]
    assert weights(*episodes, form=form, abstained="outcome") == outcome
    skipped = credits(*episodes, form=form, abstained="skip")
    assert [each.weights for each in skipped] == [(0.0, 0.0)] * 2
    assert {each.skipped for each in skipped} == {"'s' has not scored every chunk of the group"}
    both = ((1.0, [0.3, 0.9]), (0.0, [0.1, 0.2]))
    for rule in ("outcome", "skip"):
        assert weights(*both, form=form, abstained=rule) == weights(*both, form=form)
    assert weights(*both, form=form) != outcome


def test_a_group_without_scores_is_credited_by_its_outcome() -> None:
    one, other = rollout(1.0, trajectory(turn("a")), 0), rollout(0.0, trajectory(turn("b")), 1)
    found = StepScores(StepScoresOptions(scorer="s")).assign(group_of([one, other]))
    assert [each.weights for each in found] == [(0.5,), (-0.5,)]
    assert StepScores(StepScoresOptions(scorer="judge")).reads == ("judge",)


# Three binary choices. A policy is the probability of 1 after each history.
HISTORIES = [h for n in range(3) for h in itertools.product((0, 1), repeat=n)]
ENDS = list(itertools.product((0, 1), repeat=3))
Policy = Mapping[tuple[int, ...], int]


def value_of(policy: Policy, returns: Mapping[tuple[int, ...], float]) -> float:
    """Return of the one episode of a deterministic policy."""
    history: tuple[int, ...] = ()
    while len(history) < 3:
        history = (*history, policy[history])
    return returns[history]


@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize("seed", range(20))
def test_no_potential_changes_the_order_of_policies(seed: int, gamma: float) -> None:
    """All 128 policies: the shaped return of each is its own return, with misleading scores too."""
    rng = random.Random(seed)
    rewards = {end: rng.choice((0.0, 0.5, 1.0)) for end in ENDS}
    # A score of each history, of which some are missing: whatever the scorer says.
    scores = {
        h: rng.choice((None, rng.random()))
        for n in (1, 2, 3)
        for h in itertools.product((0, 1), repeat=n)
    }
    shaped = {}
    for end, reward in rewards.items():
        values = [scores[end[:k]] for k in (1, 2, 3)]
        (credit,) = credits((reward, values), gamma=gamma, baseline="none", process=3.0)
        shaped[end] = sum(gamma**k * r for k, r in enumerate(credit.rewards))
    plain = {end: gamma**2 * reward for end, reward in rewards.items()}
    policies = [
        dict(zip(HISTORIES, bits, strict=True))
        for bits in itertools.product((0, 1), repeat=len(HISTORIES))
    ]
    assert len(policies) == 128
    for policy in policies:
        assert value_of(policy, shaped) == pytest.approx(value_of(policy, plain), abs=1e-12)


@pytest.mark.parametrize("form", ["sum", "min"])
def test_the_other_forms_can_make_a_worse_episode_the_best(form: str) -> None:
    """They are for scores that are trusted: here they prefer a failure that looks good."""
    good, bad = weights((1.0, [0.0, 0.0]), (0.0, [1.0, 1.0]), form=form, process=3.0)
    assert bad[0] > good[0]
