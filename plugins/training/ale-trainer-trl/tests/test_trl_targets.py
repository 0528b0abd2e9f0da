"""Which tokens are learnt, from which episodes, and what is left out."""

from typing import Any

from ale.types import Chunk, replace
from ale_trainer_trl.options import DpoOptions, GrpoOptions
from ale_trainer_trl.targets import groups_of, pairs_of
from ale_training.contexts import contexts_of


def two_turns(lab: Any, *, first: list[int], last: list[int], **fields: Any) -> Any:
    second_prompt = [1, 2, *first, 9]
    turns = [
        lab.TokenTurn(prompt=[1, 2], output=first),
        lab.TokenTurn(prompt=second_prompt, output=last),
    ]
    return lab.TokenEpisode(turns=turns, **fields)


def test_observations_between_turns_are_masked(lab: Any) -> None:
    group = lab.credited(two_turns(lab, first=[3, 4], last=[5], reward=1.0))
    (context,) = contexts_of(group.group.rollouts[0])
    assert (context.prompt_ids, context.ids) == ((1, 2), [3, 4, 9, 5])
    assert context.mask == [1, 1, 0, 1]
    assert context.chunks == [0, 0, -1, 1]
    assert context.logprobs == [-1.0, -1.0, 0.0, -1.0]


def test_forced_turns_are_masked(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2], forced=True),
        lab.TokenTurn(prompt=[1, 2, 9], output=[3]),
    ]
    (context,) = contexts_of(
        lab.credited(lab.TokenEpisode(turns=turns, reward=1.0)).group.rollouts[0]
    )
    assert (context.ids, context.mask) == ([2, 9, 3], [0, 0, 1])


def test_a_prompt_that_does_not_extend_the_last_starts_a_new_context(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[1, 2], output=[3]), lab.TokenTurn(prompt=[1, 7], output=[4])]
    found = contexts_of(lab.credited(lab.TokenEpisode(turns=turns, reward=1.0)).group.rollouts[0])
    assert [context.prompt_ids for context in found] == [(1, 2), (1, 7)]


def test_the_best_is_paired_with_the_worst_and_the_second_with_the_second(lab: Any) -> None:
    rewards = (0.25, 1.0, 0.0, 0.75)
    episodes = [
        lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[10 + i])], reward=reward)
        for i, reward in enumerate(rewards)
    ]
    batch = lab.batch_of(lab.credited(*episodes))
    one = pairs_of(batch, DpoOptions())
    assert [(p.chosen.ids, p.rejected.ids) for p in one.pairs] == [([1, 11], [1, 12])]
    two = pairs_of(batch, DpoOptions(pairs_per_group=2))
    assert [(p.chosen.ids, p.rejected.ids) for p in two.pairs][1] == ([1, 13], [1, 10])
    assert [(p.chosen.mask, p.rejected.mask) for p in two.pairs] == [([0, 1], [0, 1])] * 2
    assert two.counts["pairs"] == 2


def test_pairs_that_are_tied_too_long_or_of_other_prompts_are_counted(lab: Any) -> None:
    def episode(prompt: list[int], reward: float, n: int = 1) -> Any:
        return lab.TokenEpisode(turns=[lab.TokenTurn(prompt=prompt, output=[5] * n)], reward=reward)

    batch = lab.batch_of(
        lab.credited(episode([1], 1.0), episode([1], 1.0)),
        lab.credited(episode([1], 1.0), episode([2], 0.0)),
        lab.credited(episode([1], 1.0, n=9), episode([1], 0.0)),
    )
    found = pairs_of(batch, DpoOptions(max_length=8))
    assert found.pairs == []
    counts = [found.counts[f"pairs_{why}"] for why in ("tied", "of_other_prompts", "too_long")]
    assert counts == [1, 1, 1]


def test_within_an_episode_the_highest_chunk_is_paired_with_the_lowest_after_its_own_context(
    lab: Any,
) -> None:
    episode = two_turns(lab, first=[3, 4], last=[5], reward=1.0, rewards=[0.1, 0.9])
    found = pairs_of(lab.batch_of(lab.credited(episode)), DpoOptions(pairs="same-trajectory"))
    (pair,) = found.pairs
    assert (pair.chosen.ids, pair.chosen.mask) == ([1, 2, 3, 4, 9, 5], [0, 0, 0, 0, 0, 1])
    assert (pair.rejected.ids, pair.rejected.mask) == ([1, 2, 3, 4], [0, 0, 1, 1])
    single = lab.credited(
        lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2])], reward=1.0)
    )
    alone = pairs_of(lab.batch_of(single), DpoOptions(pairs="same-trajectory"))
    assert (alone.pairs, alone.counts["pairs_tied"]) == ([], 1)


def test_a_chunk_of_turns_that_did_nothing_is_on_no_side(lab: Any) -> None:
    """Its reward of 0 is a placeholder, and would be the highest here."""
    turns = [
        lab.TokenTurn(prompt=[1], output=[2]),
        lab.TokenTurn(prompt=[1, 2], output=[3]),
        lab.TokenTurn(prompt=[1, 2, 3], output=[4]),
    ]
    group = lab.credited(lab.TokenEpisode(turns=turns, reward=-1.0, rewards=[0.0, -0.5, -1.0]))
    [rollout] = group.group.rollouts
    idle, *acted = rollout.episode.trajectory.turns
    made = replace(rollout.episode.trajectory, turns=(replace(idle, credited=False), *acted))
    rollout = replace(rollout, episode=replace(rollout.episode, trajectory=made))
    group = replace(group, group=replace(group.group, rollouts=(rollout,)))
    [pair] = pairs_of(lab.batch_of(group), DpoOptions(pairs="same-trajectory")).pairs
    assert (pair.chosen.ids, pair.chosen.mask) == ([1, 2, 3], [0, 0, 1])
    assert (pair.rejected.ids, pair.rejected.mask) == ([1, 2, 3, 4], [0, 0, 0, 1])


def test_a_chunk_over_several_contexts_is_on_no_side(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2]),
        lab.TokenTurn(prompt=[1, 2], output=[3]),
        lab.TokenTurn(prompt=[7], output=[4], fresh=True),
        lab.TokenTurn(prompt=[7, 4], output=[5]),
    ]
    episode = lab.TokenEpisode(turns=turns, rewards=[0.1, 0.9, 0.5], weights=[0.1, 0.9, 0.5])
    first, second, third, last = (chunk.spans[0] for chunk in episode.chunks())
    chunks = [
        Chunk(index=k, kind="test", spans=spans)
        for k, spans in enumerate([(first,), (second, third), (last,)])
    ]
    batch = lab.batch_of(lab.credited(episode, chunks=[chunks]))
    [pair] = pairs_of(batch, DpoOptions(pairs="same-trajectory")).pairs
    assert (pair.chosen.ids, pair.rejected.ids) == ([7, 4, 5], [1, 2])


def test_a_group_is_its_rewards_and_its_sampled_tokens(lab: Any) -> None:
    batch = lab.batch_of(
        lab.credited(
            two_turns(lab, first=[3, 4], last=[5], reward=1.0),
            two_turns(lab, first=[6], last=[7], reward=0.0),
        )
    )
    found = groups_of(batch, GrpoOptions())
    ((good, bad),) = found.groups
    assert (good.prompt_ids, list(good.ids), list(good.mask)) == (
        (1, 2),
        [3, 4, 9, 5],
        [1, 1, 0, 1],
    )
    assert (good.reward, bad.reward, good.weights) == (1.0, 0.0, None)
    assert found.signal


def test_an_episode_in_several_contexts_counts_in_the_mean_and_is_not_trained(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[1, 2], output=[3]), lab.TokenTurn(prompt=[1, 7], output=[4])]
    compacted = lab.TokenEpisode(turns=turns, reward=1.0, weights=[0.5, 1.0])
    plain = lab.TokenEpisode(
        turns=[lab.TokenTurn(prompt=[1, 2], output=[5])], reward=0.0, weights=[-1.0]
    )
    batch = lab.batch_of(lab.credited(compacted, plain))
    found = groups_of(batch, GrpoOptions())
    ((first, second),) = found.groups
    assert (first.reward, list(first.mask), list(second.mask)) == (1.0, [0], [1])
    assert found.counts["episodes_in_several_contexts"] == 1
    by_credit = groups_of(batch, GrpoOptions(advantage="credit"))
    (rows,) = by_credit.groups
    assert [(list(row.ids), list(row.weights or ())) for row in rows] == [
        ([3], [0.5]),
        ([4], [1.0]),
        ([5], [-1.0]),
    ]


def test_what_is_as_long_as_the_maximum_is_trained_and_what_is_longer_is_not(lab: Any) -> None:
    def episode(n: int, reward: float) -> Any:
        turn = lab.TokenTurn(prompt=[1], output=[5] * (n - 1))
        return lab.TokenEpisode(turns=[turn], reward=reward, weights=[0.5])

    batch = lab.batch_of(lab.credited(episode(8, 1.0), episode(9, 0.0)))
    ((fits, longer),) = groups_of(batch, GrpoOptions(max_length=8)).groups
    assert (list(fits.mask), list(longer.mask)) == ([1] * 7, [0])
    by_credit = groups_of(batch, GrpoOptions(max_length=8, advantage="credit"))
    ((only,),) = by_credit.groups
    assert list(only.ids) == [5] * 7
    assert by_credit.counts["episodes_too_long"] == 1
    pairs = lab.batch_of(lab.credited(episode(8, 1.0), episode(2, 0.0)))
    assert len(pairs_of(pairs, DpoOptions(max_length=8)).pairs) == 1
    longer_pair = lab.batch_of(lab.credited(episode(9, 1.0), episode(2, 0.0)))
    assert pairs_of(longer_pair, DpoOptions(max_length=8)).pairs == []


def test_a_group_of_one_and_an_episode_without_tokens_have_no_signal(lab: Any) -> None:
    group = lab.credited(
        lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2])], reward=1.0)
    )
    found = groups_of(lab.batch_of(group), GrpoOptions())
    assert (found.groups, found.signal, found.counts["groups_of_one"]) == ([], False, 1)
    rollout = group.group.rollouts[0]
    turn = rollout.episode.trajectory.turns[0]
    silent = replace(turn, completion=replace(turn.completion, tokens=None))
    episode = replace(
        rollout.episode, trajectory=replace(rollout.episode.trajectory, turns=(silent,))
    )
    bare = replace(group, group=replace(group.group, rollouts=(replace(rollout, episode=episode),)))
    found = groups_of(lab.batch_of(bare), GrpoOptions())
    assert found.counts["episodes_without_tokens"] == 1
