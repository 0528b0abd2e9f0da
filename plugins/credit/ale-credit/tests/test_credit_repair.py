"""``repair`` on small groups, with the expected numbers written out."""

import pytest

from ale.errors import InputError
from ale.strict import parse_yaml, structure
from ale.testing.builders import trajectory, turn
from ale.testing.credit import group_of, rollout
from ale.types import BatchStatistics, Chunk, Credit, Trajectory, replace, whole_turn
from ale_credit.options import RepairOptions
from ale_credit.repair import Repair


def attempts(*failed: bool) -> Trajectory:
    """One turn for each attempt."""
    errors = [["1 of 3 tests passed" if fails else None] for fails in failed]
    return trajectory(*(turn("x", calls=[("attempt", "")], errors=error) for error in errors))


AT_ONCE, REPAIRED, FAILED = attempts(False), attempts(True, False), attempts(True, True)


def assign(
    *episodes: tuple[float, Trajectory], mean_reward: float | None = None, **options: object
) -> list[Credit]:
    group = group_of([rollout(r, made, i) for i, (r, made) in enumerate(episodes)], mean_reward)
    return list(Repair(RepairOptions(**options)).assign(group))  # type: ignore[arg-type]


def test_a_repair_earns_the_bonus_and_the_failed_attempt_a_share_of_it() -> None:
    (credit,) = assign((1.0, REPAIRED), baseline="none")
    assert credit.rewards == (0.0, 1.5)
    assert credit.returns == credit.weights == (0.4 * 1.5, 1.5)


def test_a_success_at_once_earns_no_bonus() -> None:
    (credit,) = assign((1.0, AT_ONCE), baseline="none")
    assert credit.weights == (1.0,)


@pytest.mark.parametrize(("failed", "bonus"), [(False, 0.0), (True, 0.5)])
def test_an_attempt_fails_by_the_turn_that_judges_it(failed: bool, bonus: float) -> None:
    """Not by a command on the way there."""
    work, judged, rest = attempts(True, failed, False).turns
    made = trajectory(work, judged, rest)
    spans = [whole_turn(i, turn) for i, turn in enumerate(made.turns)]
    chunks = (
        Chunk(index=0, kind="attempt", spans=tuple(spans[:2])),
        Chunk(index=1, kind="untested", spans=tuple(spans[2:])),
    )
    group = group_of([replace(rollout(1.0, made), chunks=chunks)])
    (credit,) = Repair(RepairOptions(baseline="none")).assign(group)
    assert credit.rewards == (0.0, 1.0 + bonus)


def test_a_first_attempt_that_succeeds_is_worth_more_than_one_that_is_repaired() -> None:
    at_once, repaired = assign((1.0, AT_ONCE), (1.0, REPAIRED), gamma=0.4, repair_bonus=1.49)
    assert at_once.weights[0] > repaired.weights[0]


@pytest.mark.parametrize(("gamma", "bonus"), [(0.4, 1.5), (0.9, 0.2), (0.5, 1.0)])
def test_a_bonus_for_which_failing_first_would_pay_is_refused(gamma: float, bonus: float) -> None:
    with pytest.raises(ValueError, match="failing first would pay"):
        RepairOptions(gamma=gamma, repair_bonus=bonus)


def test_the_default_bonus_is_checked_against_the_gamma_of_a_config() -> None:
    with pytest.raises(InputError, match="repair_bonus: expected a value below 1 / gamma"):
        structure(parse_yaml("gamma: 0.9"), RepairOptions)


def test_hidden_tests_decide_and_not_the_visible_ones() -> None:
    passed, failed = assign((0.0, AT_ONCE), (1.0, FAILED), baseline="none")
    assert passed.weights == (0.0,)
    assert failed.weights == (0.4 * 1.5, 1.5)


def test_the_groups_baseline_is_the_mean_return_of_all_its_attempts() -> None:
    at_once, failed = assign((1.0, AT_ONCE), (0.0, FAILED))
    assert at_once.weights == (1.0 - 1.0 / 3.0,)
    assert failed.weights == (-1.0 / 3.0, -1.0 / 3.0)


def test_the_batchs_baseline_is_its_mean_reward() -> None:
    (credit,) = assign((0.0, AT_ONCE), mean_reward=0.25, baseline="batch")
    assert credit.weights == (-0.25,)


def test_an_episode_without_a_signal_says_so() -> None:
    credits = assign((0.0, FAILED), (0.0, AT_ONCE))
    reasons = {credit.skipped for credit in credits}
    assert reasons == {"every return of the episode equals the baseline"}


def test_a_negative_reward_is_not_made_worse_by_a_repair() -> None:
    (credit,) = assign((-1.0, REPAIRED), baseline="none")
    assert credit.rewards == (0.0, -1.0)


def test_the_batch_alone_gives_the_batchs_baseline() -> None:
    group = group_of([rollout(1.0, AT_ONCE)])
    other = replace(group, batch=BatchStatistics(n_episodes=9, mean_reward=0.75))
    (credit,) = Repair(RepairOptions(baseline="batch")).assign(other)
    assert credit.weights == (0.25,)
