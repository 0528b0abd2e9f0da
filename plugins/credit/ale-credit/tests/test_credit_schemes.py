"""The schemes on small groups, with the expected numbers written out."""

from itertools import pairwise
from typing import Any

import pytest

from ale.protocols import CreditScheme
from ale.runs import Crediting
from ale.testing.builders import trajectory, turn
from ale.testing.credit import group_of, rollout
from ale.testing.fakes import FakeChunker
from ale.types import (
    BatchStatistics,
    Chunk,
    Credit,
    Group,
    Rollout,
    Span,
    Stop,
    Trajectory,
    Usage,
    replace,
)
from ale_credit.chunk_schemes import FilteredImitation, Ipa, IpaLite, NoCredit, Reinforce, WeightOne
from ale_credit.group_schemes import DrGrpo, Grpo, Rloo
from ale_credit.options import (
    FilteredImitationOptions,
    GrpoOptions,
    IpaLiteOptions,
    IpaOptions,
    OverlongOptions,
    ReinforceOptions,
)

CALL = ("bash", "{}")


def acts(*failed: bool) -> Trajectory:
    """One turn with one call for each, failed or not."""
    errors = [["exit code 1" if fails else None] for fails in failed]
    return trajectory(*(turn("x", calls=[CALL], errors=error) for error in errors))


def group(*rewards: float, n_chunks: int = 3, mean_reward: float | None = None) -> Group:
    made = acts(*[False] * n_chunks)
    return group_of([rollout(r, made, i) for i, r in enumerate(rewards)], mean_reward)


def one(scheme: Ipa | IpaLite | Reinforce, given: Group) -> Credit:
    (credit,) = scheme.assign(given)
    return credit


def test_ipa_weights_are_returns() -> None:
    credit = one(Ipa(IpaOptions(gamma=0.5)), group(1.0))
    assert credit == Credit(
        episode_id="0-demo-0",
        scheme="ipa",
        rewards=(0.0, 0.0, 1.0),
        returns=(0.25, 0.5, 1.0),
        weights=(0.25, 0.5, 1.0),
    )


def test_ipa_skips_a_reward_of_0_with_a_reason() -> None:
    credit = one(Ipa(IpaOptions()), group(0.0))
    assert credit.weights == (0.0, 0.0, 0.0)
    assert credit.skipped == "every return is 0"


def test_ipa_has_weights_for_failures_with_a_negative_reward() -> None:
    credit = one(Ipa(IpaOptions(gamma=0.5, failure_reward=-1.0)), group(0.0))
    assert credit.rewards == (0.0, 0.0, -1.0)
    assert credit.weights == (-0.25, -0.5, -1.0)
    assert credit.skipped is None


def test_a_failure_reward_does_not_change_partial_success() -> None:
    credit = one(Ipa(IpaOptions(gamma=1.0, failure_reward=-1.0)), group(0.25))
    assert credit.weights == (0.25, 0.25, 0.25)


def test_ipa_with_all_or_nothing_counts_partial_success_as_failure() -> None:
    options = IpaOptions(gamma=1.0, terminal_reward="all-or-nothing", failure_reward=-0.5)
    low, high = Ipa(options).assign(group(0.99, 1.0))
    assert low.weights == (-0.5, -0.5, -0.5)
    assert high.weights == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("reason", "weight"), [("finished", 1.0), ("max_turns", -0.5)])
def test_ipa_can_count_unfinished_success_as_failure(reason: Any, weight: float) -> None:
    played = rollout(1.0, acts(False, False))
    trajectory = replace(played.episode.trajectory, stop=Stop(reason=reason))
    stopped = replace(played, episode=replace(played.episode, trajectory=trajectory))
    options = IpaOptions(gamma=1.0, failure_reward=-0.5, unfinished="failure")
    assert one(Ipa(options), group_of([stopped])).weights == (weight, weight)
    options = IpaOptions(gamma=1.0, failure_reward=-0.5)
    assert one(Ipa(options), group_of([stopped])).weights == (1.0, 1.0)


def test_ipa_with_rewards_for_errors_discounts_them_too() -> None:
    options = IpaOptions(gamma=0.5, per_chunk_rewards="terminal-and-errors", error_penalty=0.5)
    credit = one(Ipa(options), group_of([rollout(1.0, acts(False, True, False))]))
    assert credit.rewards == (0.0, -0.5, 1.0)
    assert credit.returns == credit.weights == (0.0, 0.0, 1.0)


def test_ipa_without_errors_gives_the_same_under_both_kinds_of_rewards() -> None:
    errors = Ipa(IpaOptions(per_chunk_rewards="terminal-and-errors"))
    assert errors.assign(group(1.0, 0.5)) == Ipa(IpaOptions()).assign(group(1.0, 0.5))


def test_ipa_without_discount_weighs_all_chunks_the_same() -> None:
    assert one(Ipa(IpaOptions(gamma=1.0)), group(0.5)).weights == (0.5, 0.5, 0.5)


def test_ipa_with_one_chunk_is_reinforce() -> None:
    given = group(1.0, 0.0, 0.3, n_chunks=1)
    ipa, reinforce = Ipa(IpaOptions(gamma=0.5)), Reinforce(ReinforceOptions())
    assert [c.weights for c in ipa.assign(given)] == [(1.0,), (0.0,), (0.3,)]
    assert [c.weights for c in reinforce.assign(given)] == [(1.0,), (0.0,), (0.3,)]


def test_ipa_does_not_look_at_the_other_rollouts() -> None:
    scheme = Ipa(IpaOptions())
    assert scheme.assign(group(1.0, 0.0, mean_reward=0.9))[0] == one(scheme, group(1.0))


def test_ipa_does_not_depend_on_what_came_before_the_last_chunks() -> None:
    scheme = Ipa(IpaOptions(gamma=0.9))
    short, long = one(scheme, group(1.0, n_chunks=3)), one(scheme, group(1.0, n_chunks=9))
    assert long.weights[-3:] == short.weights


def test_ipa_lite_is_the_weighted_score_less_the_mean_reward_of_the_batch() -> None:
    credit = one(IpaLite(IpaLiteOptions()), group(0.5, n_chunks=4, mean_reward=0.25))
    assert credit.rewards == credit.returns == (0.125, 0.25, 0.375, 0.5)
    assert credit.weights == (-0.125, 0.0, 0.125, 0.25)


def test_ipa_lite_with_geometric_weights() -> None:
    options = IpaLiteOptions(weighting="geometric", decay=0.5)
    assert one(IpaLite(options), group(1.0, mean_reward=0.0)).weights == (0.25, 0.5, 1.0)


@pytest.mark.parametrize("weighting", ["linear", "geometric"])
def test_ipa_lite_grows_strictly_with_position(weighting: str) -> None:
    options = IpaLiteOptions(weighting=weighting)  # type: ignore[arg-type]
    weights = one(IpaLite(options), group(0.5, n_chunks=50)).weights
    assert all(before < after for before, after in pairwise(weights))


def test_ipa_lite_lowers_the_chunk_of_a_failed_call_and_no_other() -> None:
    scheme = IpaLite(IpaLiteOptions(error_penalty=0.5))
    good = one(scheme, group_of([rollout(1.0, acts(False, False, False, False))], 0.5))
    bad = one(scheme, group_of([rollout(1.0, acts(False, True, False, False))], 0.5))
    differences = [a - b for a, b in zip(good.weights, bad.weights, strict=True)]
    assert differences == [0.0, 0.5, 0.0, 0.0]


def test_an_error_lowers_the_chunk_that_holds_its_call_within_a_turn() -> None:
    made = trajectory(turn("x", calls=[CALL] * 3, errors=[None, "timeout", None]))
    chunks = tuple(
        Chunk(index=i, kind="tool-call", spans=(Span(turn=0, text=text, calls=(i, i + 1)),))
        for i, text in enumerate([(0, 1), (1, 1), (1, 1)])
    )
    given = group_of([replace(rollout(0.0, made), chunks=chunks)])
    assert one(IpaLite(IpaLiteOptions(error_penalty=0.5)), given).rewards == (0.0, -0.5, 0.0)


def test_reinforce_weights_are_the_reward() -> None:
    assert one(Reinforce(ReinforceOptions()), group(0.5)).weights == (0.5, 0.5, 0.5)


def test_reinforce_with_the_mean_of_the_batch_as_baseline() -> None:
    scheme = Reinforce(ReinforceOptions(baseline="batch"))
    good, bad = scheme.assign(group(1.0, 0.0, mean_reward=0.25))
    assert good.weights == (0.75, 0.75, 0.75)
    assert bad.weights == (-0.25, -0.25, -0.25)
    assert good.returns == (1.0, 1.0, 1.0)


def test_reinforce_discounts_before_the_baseline() -> None:
    scheme = Reinforce(ReinforceOptions(gamma=0.5, baseline="batch"))
    assert one(scheme, group(1.0, mean_reward=0.5)).weights == (-0.25, 0.0, 0.5)


GROUP_SCHEMES = [Grpo(GrpoOptions()), DrGrpo(), Rloo()]


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (Grpo(GrpoOptions(std="population", eps=1e-12)), (1.0, -1.0)),
        (Grpo(GrpoOptions(std="sample", eps=1e-12)), (0.5**0.5, -(0.5**0.5))),
        (DrGrpo(), (0.5, -0.5)),
        (Rloo(), (1.0, -1.0)),
    ],
)
def test_group_schemes_on_a_success_and_a_failure(
    scheme: Grpo | DrGrpo | Rloo, expected: tuple[float, float]
) -> None:
    good, bad = scheme.assign(group(1.0, 0.0))
    assert good.weights == pytest.approx((expected[0],) * 3)
    assert bad.weights == pytest.approx((expected[1],) * 3)
    assert good.rewards == (0.0, 0.0, 1.0)
    assert good.returns == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("scheme", GROUP_SCHEMES)
def test_a_group_of_equal_rewards_has_weights_of_exactly_0_and_a_reason(
    scheme: Grpo | DrGrpo | Rloo,
) -> None:
    for credit in scheme.assign(group(*[0.1] * 7)):
        assert credit.weights == (0.0, 0.0, 0.0)
        assert credit.skipped == "all 7 rewards of the group are 0.1"


@pytest.mark.parametrize("scheme", GROUP_SCHEMES)
def test_rewards_that_differ_by_an_error_of_rounding_are_equal(
    scheme: Grpo | DrGrpo | Rloo,
) -> None:
    """GRPO would divide the error by itself: weights of 1 and -1."""
    assert 0.1 + 0.2 != 0.3
    for credit in scheme.assign(group(0.3, 0.1 + 0.2)):
        assert credit.weights == (0.0, 0.0, 0.0)
        assert credit.skipped == "all 2 rewards of the group are 0.3"
    assert [credit.skipped for credit in scheme.assign(group(0.3, 0.3 + 1e-9))] == [None, None]


@pytest.mark.parametrize("scheme", GROUP_SCHEMES)
def test_a_group_of_one_is_skipped(scheme: Grpo | DrGrpo | Rloo) -> None:
    (credit,) = scheme.assign(group(1.0))
    assert credit.weights == (0.0, 0.0, 0.0)
    assert credit.skipped == "the group has only one graded rollout"


@pytest.mark.parametrize("scheme", GROUP_SCHEMES)
def test_a_reward_that_is_the_groups_mean_is_not_skipped(scheme: Grpo | DrGrpo | Rloo) -> None:
    """Its tokens count where a trainer divides by those of groups that were not left out."""
    middle = scheme.assign(group(0.0, 0.5, 1.0))[1]
    assert middle.weights == (0.0, 0.0, 0.0)
    assert middle.skipped is None


@pytest.mark.parametrize("scheme", GROUP_SCHEMES)
def test_better_rollouts_have_higher_weights_than_worse_ones(scheme: Grpo | DrGrpo | Rloo) -> None:
    weights = [credit.weights[0] for credit in scheme.assign(group(0.2, 1.0, 0.0, 0.6))]
    assert weights[2] < weights[0] < 0.0 < weights[3] < weights[1]


@pytest.mark.parametrize("scheme", GROUP_SCHEMES)
def test_shifting_all_rewards_changes_no_weight(scheme: Grpo | DrGrpo | Rloo) -> None:
    low, high = scheme.assign(group(0.0, 0.25, 0.5)), scheme.assign(group(0.5, 0.75, 1.0))
    assert [c.weights for c in low] == [c.weights for c in high]


@pytest.mark.parametrize(
    "scheme", [Ipa(IpaOptions()), IpaLite(IpaLiteOptions()), Reinforce(ReinforceOptions()), Rloo()]
)
@pytest.mark.parametrize("reward", [None, float("nan")])
def test_an_episode_without_a_reward_is_refused(
    scheme: Ipa | IpaLite | Reinforce | Rloo, reward: float | None
) -> None:
    given = group(1.0)
    broken = replace(given.rollouts[0].episode, reward=reward)
    with pytest.raises(ValueError, match="episode 0-demo-0 has no finite reward"):
        scheme.assign(replace(given, rollouts=(replace(given.rollouts[0], episode=broken),)))


@pytest.mark.parametrize(
    "options",
    [
        {"gamma": 0.0},
        {"gamma": 1.01},
        {"gamma": float("nan")},
        {"failure_reward": 0.5},
        {"failure_reward": -float("inf")},
        {"error_penalty": 0.1},
        {"per_chunk_rewards": "terminal-and-errors", "error_penalty": -0.1},
    ],
)
def test_ipa_rejects_meaningless_options(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(reversed(options))):
        IpaOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"decay": 0.5}, {"weighting": "geometric", "decay": 1.0}])
def test_ipa_lite_rejects_a_meaningless_decay(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="decay"):
        IpaLiteOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", [Ipa(IpaOptions()), IpaLite(IpaLiteOptions()), *GROUP_SCHEMES])
def test_the_order_of_the_rollouts_does_not_change_a_bit(
    scheme: Ipa | IpaLite | Grpo | DrGrpo | Rloo,
) -> None:
    given = group(0.1, 0.7, 1 / 3, 0.2, 1.0, 0.0, 0.1)
    backwards = replace(given, rollouts=given.rollouts[::-1])
    assert scheme.assign(backwards) == scheme.assign(given)[::-1]


@pytest.mark.parametrize(
    ("scheme", "weights"),
    [
        (Ipa(IpaOptions(gamma=0.5)), (0.5, 0.0, 1.0, 0.0, 0.0)),
        (IpaLite(IpaLiteOptions()), (0.25, 0.0, 0.75, 0.0, 0.0)),
    ],
    ids=["ipa", "ipa-lite"],
)
def test_turns_that_did_nothing_get_no_credit_and_do_not_move_that_of_the_others(
    scheme: CreditScheme, weights: tuple[float, ...]
) -> None:
    crediting = Crediting(
        chunker=FakeChunker(), chunker_name="turns", scheme=scheme, scheme_name="s"
    )
    idle = replace(turn("Done."), credited=False)
    work = turn("x", calls=[CALL])
    (done,) = group_of([rollout(1.0, trajectory(work, idle, work, idle, idle), 0)]).rollouts
    batch = BatchStatistics(n_episodes=1, mean_reward=0.25)
    group = Group(task_id="demo", rollouts=(crediting.split(done.episode),), batch=batch)
    (credit,) = crediting.assign(group).credits
    assert credit.weights == weights
    assert credit.skipped is None


def test_an_episode_of_idle_turns_alone_is_skipped() -> None:
    crediting = Crediting(
        chunker=FakeChunker(), chunker_name="turns", scheme=Ipa(IpaOptions()), scheme_name="ipa"
    )
    idle = replace(turn("Done."), credited=False)
    (done,) = group_of([rollout(1.0, trajectory(idle, idle), 0)]).rollouts
    group = group_of([crediting.split(done.episode)])
    (credit,) = crediting.assign(group).credits
    assert (credit.weights, credit.skipped) == ((0.0, 0.0), "no turn of the episode gets credit")


def of_length(reward: float, index: int, n_tokens: int) -> Rollout:
    (one,) = acts(False).turns
    completion = replace(one.completion, usage=Usage(completion_tokens=n_tokens))
    return rollout(reward, trajectory(replace(one, completion=completion)), index)


def test_grpo_tells_equal_successes_apart_by_the_tokens_over_the_buffer() -> None:
    made = group_of([of_length(1.0, i, n) for i, n in enumerate((50, 75, 200))])
    assert all(credit.skipped for credit in Grpo(GrpoOptions()).assign(made))
    options = GrpoOptions(overlong=OverlongOptions(limit=100, buffer=50))
    credits = Grpo(options).assign(made)
    assert [credit.rewards for credit in credits] == [(1.0,), (0.5,), (0.0,)]
    assert [credit.weights[0] for credit in credits] == pytest.approx([1.0, 0.0, -1.0], abs=1e-5)


def test_tokens_that_the_policy_was_given_are_not_over_the_buffer() -> None:
    own, given = (
        replace(
            turn("x", tokens=n),
            completion=replace(turn("x", tokens=n).completion, forced=n == 90),
        )
        for n in (50, 90)
    )
    rollouts = [
        rollout(1.0, trajectory(*turns), i) for i, turns in enumerate([(own,), (given, own)])
    ]
    options = GrpoOptions(overlong=OverlongOptions(limit=100, buffer=50))
    assert all(credit.skipped for credit in Grpo(options).assign(group_of(rollouts)))


def test_a_buffer_is_at_most_the_limit() -> None:
    with pytest.raises(ValueError, match="'buffer' is 3, more than the limit of 2"):
        OverlongOptions(limit=2, buffer=3)


def test_weight_one_is_the_same_for_a_success_and_a_failure() -> None:
    group = group_of([rollout(1.0, acts(False, False)), rollout(0.0, acts(False))])
    assert [credit.weights for credit in WeightOne().assign(group)] == [
        (1.0,) * len(rollout.chunks) for rollout in group.rollouts
    ]


def test_without_credit_no_reward_counts_and_no_episode_is_skipped() -> None:
    credits = NoCredit().assign(group(1.0, 0.0))
    assert [credit.weights for credit in credits] == [(0.0,) * 3] * 2
    assert [credit.rewards for credit in credits] == [(0.0,) * 3] * 2
    assert [credit.skipped for credit in credits] == [None, None]


def test_filtered_imitation_weighs_successes_alone_and_every_chunk_of_them_alike() -> None:
    scheme = FilteredImitation(FilteredImitationOptions())
    credits = scheme.assign(group(1.0, 0.99, 0.0))
    assert [credit.weights for credit in credits] == [(1.0,) * 3, (0.0,) * 3, (0.0,) * 3]
    assert [credit.skipped is None for credit in credits] == [True, False, False]


def test_filtered_imitation_can_leave_out_successes_that_a_limit_ended() -> None:
    played = rollout(1.0, acts(False, False))
    cut_off = replace(played.episode.trajectory, stop=Stop(reason="max_turns"))
    stopped = group_of([replace(played, episode=replace(played.episode, trajectory=cut_off))])
    whole = FilteredImitation(FilteredImitationOptions())
    finished = FilteredImitation(FilteredImitationOptions(unfinished="failure"))
    assert one(whole, stopped).weights == (1.0, 1.0)
    assert one(finished, stopped).weights == (0.0, 0.0)
    assert one(finished, group(1.0)).weights == (1.0, 1.0, 1.0)
