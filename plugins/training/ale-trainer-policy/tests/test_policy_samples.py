"""What a batch becomes: every token with its chunk and weight, nothing inferred, all counted."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ale.errors import AleError
from ale.types import Chunk, CreditedGroup, Span, replace
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.options import PRESETS, SftOptions
from ale_trainer_policy.samples import Sample, read_group
from ale_trainer_policy.targets import EXPERT_TURNS, Imitation, Reinforcement
from ale_training.normalise import Counted, by_kept_tokens


def read(group: CreditedGroup) -> tuple[list[Sample], "Counter[str]"]:
    counts: Counter[str] = Counter()
    return [sample for _, sample in read_group(group, counts)], counts


def reinforcement(when: Any = "fallback", preset: str = "ipa", **fields: Any) -> Reinforcement:
    options = ImitationOptions(when=when, **fields)
    return Reinforcement(objective=PRESETS[preset], imitation=options)


def test_turns_of_an_episode_are_one_row_and_only_generated_tokens_are_trained(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1, 2], output=[3, 4]),
        lab.TokenTurn(prompt=[1, 2, 3, 4, 50, 51], output=[5]),
    ]
    [sample], counts = read(lab.credited(lab.TokenEpisode(turns=turns, weights=[0.5, 1.0])))
    assert [row.tolist() for row in sample.rows] == [[1, 2, 3, 4, 50, 51, 5]]
    assert sample.rows[0][sample.at].tolist() == [3, 4, 5]
    assert sample.weight.tolist() == [0.5, 0.5, 1.0]
    assert sample.chunk.tolist() == [0, 0, 1]
    assert counts["prefix_breaks"] == 0


def test_the_token_that_ends_a_turn_is_trained(lab: Any) -> None:
    end = 9
    turns = [
        lab.TokenTurn(prompt=[1], output=[3, end]),
        lab.TokenTurn(prompt=[1, 3, end, 7], output=[4, end]),
    ]
    [sample], _ = read(lab.credited(lab.TokenEpisode(turns=turns)))
    trained = sample.rows[0][sample.at]
    assert (trained == end).sum() == 2
    assert all(sample.weight[trained == end] == 1.0)


def test_an_id_that_is_also_the_padding_is_trained_like_any_other(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[0, 1], output=[0, 0, 2])]
    [sample], _ = read(lab.credited(lab.TokenEpisode(turns=turns)))
    assert sample.at.tolist() == [2, 3, 4]


def test_adjacent_chunks_without_an_observation_between_them_do_not_merge(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3]),
        lab.TokenTurn(prompt=[1, 2, 3], output=[4, 5], cuts=[0, 1]),
    ]
    [sample], _ = read(lab.credited(lab.TokenEpisode(turns=turns, weights=[1.0, 2.0, 3.0])))
    assert sample.chunk.tolist() == [0, 0, 1, 2]
    assert sample.weight.tolist() == [1.0, 1.0, 2.0, 3.0]


def test_a_hole_in_the_middle_does_not_split_a_chunk(lab: Any) -> None:
    spans = tuple(
        Span(turn=0, text=(a, b), calls=(0, 0), tokens=(a, b)) for a, b in ((0, 2), (3, 5))
    )
    chunks = [[Chunk(index=0, kind="holed", spans=spans)]]
    episode = lab.TokenEpisode(
        turns=[lab.TokenTurn(prompt=[1], output=[2, 3, 4, 5, 6])], weights=[1.0]
    )
    [sample], counts = read(lab.credited(episode, chunks=chunks))
    assert sample.chunk.tolist() == [0, 0, 0, 0]
    assert sample.at.tolist() == [1, 2, 4, 5]
    assert counts["tokens_without_chunk"] == 1


def test_the_reward_survives_a_last_turn_that_is_not_the_policys(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3]),
        lab.TokenTurn(prompt=[1, 2, 3, 40], output=[7, 8], forced=True),
    ]
    [sample], _ = read(lab.credited(lab.TokenEpisode(turns=turns, weights=[0.5, 1.0])))
    assert sample.weight.tolist() == [0.5, 0.5, 0.0, 0.0]
    assert sample.positive


def test_an_empty_chunk_is_counted_and_harms_nothing(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[1], output=[]), lab.TokenTurn(prompt=[1, 5], output=[2])]
    [sample], counts = read(lab.credited(lab.TokenEpisode(turns=turns, weights=[1.0, 2.0])))
    assert counts["chunks_empty"] == 1
    assert sample.weight.tolist() == [2.0]
    assert sample.chunk.tolist() == [1]


def test_a_prompt_that_does_not_extend_what_was_said_is_counted(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[1], output=[2, 3]), lab.TokenTurn(prompt=[1, 2, 9], output=[4])]
    [sample], counts = read(lab.credited(lab.TokenEpisode(turns=turns)))
    assert [row.tolist() for row in sample.rows] == [[1, 2, 3], [1, 2, 9, 4]]
    assert counts["prefix_breaks"] == 1
    compacted = [turns[0], lab.TokenTurn(prompt=[1, 2, 9], output=[4], fresh=True)]
    _, counts = read(lab.credited(lab.TokenEpisode(turns=compacted)))
    assert counts["prefix_breaks"] == 0


def test_tokens_without_a_range_are_never_guessed(lab: Any) -> None:
    chunks = [[Chunk(index=0, kind="c", spans=(Span(turn=0, text=(0, 2), calls=(0, 0)),))]]
    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2, 3])], weights=[1.0])
    [sample], counts = read(lab.credited(episode, chunks=chunks))
    assert sample.at.size == 0
    assert (counts["tokens_without_chunk"], counts["chunks_empty"]) == (2, 1)


def test_a_turn_whose_tokens_were_not_recorded_is_counted(lab: Any) -> None:
    group = lab.credited(lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[])]))
    [rollout] = group.group.rollouts
    [turn] = rollout.episode.trajectory.turns
    bare = replace(turn, completion=replace(turn.completion, tokens=None))
    trajectory = replace(rollout.episode.trajectory, turns=(bare,))
    episode = replace(rollout.episode, trajectory=trajectory)
    bare_group = replace(group.group, rollouts=(replace(rollout, episode=episode),))
    [sample], counts = read(replace(group, group=bare_group))
    assert counts["turns_without_tokens"] == 1
    assert sample.rows == ()
    assert not sample.trainable


def test_groups_that_are_empty_or_of_one_mind_are_counted(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[1], output=[2])]
    _, counts = read(lab.credited(lab.TokenEpisode(turns=turns), lab.TokenEpisode(turns=turns)))
    assert (counts["groups_equal_rewards"], counts["groups_empty"]) == (1, 0)
    _, counts = read(lab.credited())
    assert (counts["groups_equal_rewards"], counts["groups_empty"]) == (0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": (1.0, 2.0)}, "1 rewards, 1 returns and 2 weights"),
        ({"weights": (float("nan"),)}, "not finite"),
        ({"episode_id": "other"}, "given for episode"),
    ],
)
def test_credit_that_does_not_fit_is_refused(
    lab: Any, change: dict[str, Any], message: str
) -> None:
    group = lab.credited(lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2])]))
    wrong = replace(group, credits=(replace(group.credits[0], **change),))
    with pytest.raises(AleError, match=message):
        read(wrong)


def test_a_range_beyond_the_turn_is_refused(lab: Any) -> None:
    spans = (Span(turn=0, text=(0, 2), calls=(0, 0), tokens=(0, 3)),)
    chunks = [[Chunk(index=0, kind="c", spans=spans)]]
    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2, 3])], weights=[1.0])
    with pytest.raises(AleError, match="tokens 0 to 3 of turn 0, which has 2"):
        read(lab.credited(episode, chunks=chunks))


def replayed(lab: Any, reward: float, **fields: Any) -> Any:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4]),
    ]
    return lab.TokenEpisode(turns=turns, reward=reward, **fields)


def test_replayed_chunks_get_no_reinforcement(lab: Any) -> None:
    for when in ("off", "fallback", "always"):
        read_ = reinforcement(when).read(lab.batch_of(lab.credited(replayed(lab, 1.0))))
        assert read_.samples[0].weight.tolist() == [0.0, 0.0, 1.0]


def test_imitation_falls_back_only_where_no_sampled_episode_succeeded(lab: Any) -> None:
    failed, won = replayed(lab, -1.0), replayed(lab, 1.0)
    expert = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2, 3], forced=True)])

    def imitated(*episodes: Any, when: str = "fallback") -> list[bool]:
        samples = reinforcement(when).read(lab.batch_of(lab.credited(*episodes))).samples
        return [bool(sample.imitation.any()) for sample in samples]

    assert imitated(failed, failed) == [True, True]
    assert imitated(failed, won) == [False, False]
    assert imitated(failed, replayed(lab, 0.5)) == [True, True], "half is no success"
    assert imitated(failed, expert) == [True, True], "the expert's own success is none"
    assert imitated(failed, won, when="always") == [True, True]
    assert imitated(failed, when="off") == [False]


def test_imitation_is_discounted_from_the_experts_last_turn(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2], forced=True),
        lab.TokenTurn(prompt=[1, 2], output=[3, 4], forced=True),
    ]
    target = reinforcement("always", weight=0.1, gamma=0.5)
    [sample] = target.read(lab.batch_of(lab.credited(lab.TokenEpisode(turns=turns)))).samples
    assert sample.imitation.tolist() == pytest.approx([0.05, 0.1, 0.1])
    part = lab.TokenEpisode(turns=turns, metadata={EXPERT_TURNS: 4})
    [sample] = target.read(lab.batch_of(lab.credited(part))).samples
    assert sample.imitation.tolist() == pytest.approx([0.1 / 8, 0.1 / 4, 0.1 / 4])


def test_the_discount_is_by_turn_however_turns_are_cut(lab: Any) -> None:
    """K* counts turns: a chunker that cuts them apart changes nothing."""
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3, 4], forced=True, cuts=[0, 1, 2]),
        lab.TokenTurn(prompt=[1, 2, 3, 4], output=[5, 6], forced=True, cuts=[0, 1]),
    ]
    target = reinforcement("always", weight=1.0, gamma=0.5)
    for metadata, last in (({}, 1.0), ({EXPERT_TURNS: 3}, 0.5)):
        episode = lab.TokenEpisode(turns=turns, metadata=metadata)
        [sample] = target.read(lab.batch_of(lab.credited(episode))).samples
        assert sample.imitation.tolist() == pytest.approx([last / 2] * 3 + [last] * 2)


def four(lab: Any) -> Any:
    """Trajectories of 1, 2 and 3 sampled tokens, the last skipped, and one that is all forced."""
    made = [
        lab.TokenEpisode(
            turns=[lab.TokenTurn(prompt=[1], output=[2] * n)], skipped="no" if n == 3 else None
        )
        for n in (1, 2, 3)
    ]
    forced = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2] * 4, forced=True)])
    return lab.batch_of(lab.credited(*made, forced))


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("ipa", [1 / 3, 1 / 3, 1 / 3]),
        ("dr-grpo", [1 / 3072, 1 / 3072, 1 / 3072]),
        ("cispo", [1 / 6, 1 / 6, 1 / 6]),
        ("dapo", [1 / 3, 1 / 3, 1 / 3]),
        ("grpo", [1 / 3, 1 / 6, 1 / 9]),
    ],
)
def test_the_normaliser_of_a_preset(lab: Any, preset: str, wanted: list[float]) -> None:
    target = reinforcement("off", preset)
    samples = target.normalised(target.read(four(lab)).samples)
    assert [sample.weight[0] for sample in samples[:3]] == pytest.approx(wanted)
    assert samples[3].weight.any() == np.False_


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [("cispo", [1 / 5, 1 / 5]), ("dapo", [1 / 5, 1 / 5]), ("grpo", [1 / 4, 1 / 6])],
)
def test_no_normaliser_counts_the_forced_tokens_before_sampled_ones(
    lab: Any, preset: str, wanted: list[float]
) -> None:
    led = [
        lab.TokenTurn(prompt=[1], output=[2, 3, 4, 5], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 4, 5, 9], output=[6, 7]),
    ]
    own = [lab.TokenTurn(prompt=[1], output=[2, 3, 4])]
    made = [lab.TokenEpisode(turns=turns) for turns in (led, own)]
    target = reinforcement("off", preset)
    samples = target.normalised(target.read(lab.batch_of(lab.credited(*made))).samples)
    assert [sample.weight[-1] for sample in samples] == pytest.approx(wanted)


def test_an_update_without_kept_tokens_is_divided_by_all_of_them() -> None:
    """What is left is a KL or entropy term, which would otherwise be a sum over tokens."""
    skipped = [Counted(tokens=n, skipped=True) for n in (2, 4)]
    assert by_kept_tokens(skipped, 1.0) == [6.0, 6.0]
    assert by_kept_tokens([*skipped, Counted(tokens=3, skipped=False)], 1.0) == [3.0] * 3


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ("successful", [True, False, False]),
        ("forced", [False, False, True]),
        ("both", [True, False, True]),
    ],
)
def test_which_episodes_are_imitated(lab: Any, chosen: Any, wanted: list[bool]) -> None:
    won = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2])], reward=1.0)
    failed = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2])], reward=0.5)
    forced = lab.TokenEpisode(
        turns=[lab.TokenTurn(prompt=[1], output=[2], forced=True)], reward=0.0
    )
    target = Imitation(options=SftOptions(learn_from=chosen))
    read_ = target.read(lab.batch_of(lab.credited(won, failed, forced)))
    assert [bool(sample.imitation.any()) for sample in read_.samples] == wanted
    assert read_.counts["episodes_imitated"] == sum(wanted)
    assert not any(sample.weight.any() for sample in read_.samples)


@pytest.mark.parametrize("forced", [False, True])
def test_answers_that_did_nothing_are_not_imitated(lab: Any, forced: bool) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3], forced=forced),
        lab.TokenTurn(prompt=[1, 2, 3, 4], output=[5], forced=forced),
    ]
    group = lab.credited(lab.TokenEpisode(turns=turns))
    [rollout] = group.group.rollouts
    idle, acted = rollout.episode.trajectory.turns
    trajectory = replace(rollout.episode.trajectory, turns=(replace(idle, credited=False), acted))
    rollout = replace(rollout, episode=replace(rollout.episode, trajectory=trajectory))
    group = replace(group, group=replace(group.group, rollouts=(rollout,)))
    target = Imitation(options=SftOptions(learn_from="both"))
    [sample] = target.read(lab.batch_of(group)).samples
    assert sample.imitation.tolist() == [0, 0, 1]
