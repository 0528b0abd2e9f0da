"""Converts a batch to pairs (DPO) or groups (GRPO). Pure; what is left out is counted."""

from collections import Counter
from collections.abc import Iterator, Sequence

from attrs import field, frozen

from ale.types import Batch, Credit, CreditedGroup, Rollout
from ale_trainer_trl.learning.groups import Sampled
from ale_trainer_trl.learning.tokens import Pair, Tokens
from ale_trainer_trl.options import DpoOptions, GrpoOptions
from ale_training.contexts import Context, contexts_of

Counts = Counter[str]
Usable = tuple[Rollout, Credit, list[Context]]


@frozen
class Pairs:
    """The preferences of a batch, and counts of what was left out."""

    pairs: list[Pair]
    counts: Counts


@frozen
class Groups:
    """The groups of a batch, and counts of what was left out."""

    groups: list[list[Sampled]]
    counts: Counts
    signal: bool = field(kw_only=True)
    """Has any token a nonzero advantage?"""


def pairs_of(batch: Batch, options: DpoOptions) -> Pairs:
    """The preferences that a batch holds.

    Raises:
        AleError: credits and rollouts do not match.
    """
    counts: Counts = Counter(
        episodes_in_several_contexts=0,
        episodes_without_tokens=0,
        pairs_of_other_prompts=0,
        pairs_tied=0,
        pairs_too_long=0,
    )
    by = _pairs_across_episodes if options.pairs == "same-prompt" else _pairs_within_episodes
    found = []
    for group in batch.groups:
        for pair in by(_usable(group, counts), options, counts):
            if pair.longest > options.max_length:
                counts["pairs_too_long"] += 1
            else:
                found.append(pair)
    counts["pairs"] = len(found)
    return Pairs(found, counts)


def _usable(group: CreditedGroup, counts: Counts) -> list[Usable]:
    found = []
    for rollout, credit in group.pairs():
        contexts = contexts_of(rollout)
        counts["episodes_without_tokens"] += not contexts
        if contexts:
            found.append((rollout, credit, contexts))
    return found


def _reward(rollout: Rollout) -> float:
    assert rollout.episode.reward is not None  # broken episodes are in no group
    return rollout.episode.reward


def _pairs_across_episodes(
    usable: Sequence[Usable], options: DpoOptions, counts: Counts
) -> Iterator[Pair]:
    """Pair the best with the worst episode of a prompt, then the second best and worst ..."""
    whole = [(rollout, contexts[0]) for rollout, _, contexts in usable if len(contexts) == 1]
    counts["episodes_in_several_contexts"] += len(usable) - len(whole)
    ranked = sorted(whole, key=lambda each: -_reward(each[0]))
    for i in range(min(options.pairs_per_group, len(ranked) // 2)):
        (better, chosen), (worse, rejected) = ranked[i], ranked[-1 - i]
        if _reward(better) == _reward(worse):
            counts["pairs_tied"] += 1
        elif chosen.prompt_ids != rejected.prompt_ids:
            counts["pairs_of_other_prompts"] += 1
        elif any(chosen.mask) and any(rejected.mask):
            yield Pair(_tokens(chosen), _tokens(rejected))


def _pairs_within_episodes(
    usable: Sequence[Usable], _: DpoOptions, counts: Counts
) -> Iterator[Pair]:
    """Pair the highest with the lowest rewarded chunk of each episode, each after its context.

    Chunks of turns that did nothing, whose rewards are placeholders, and chunks over several
    contexts are on no side.
    """
    for rollout, credit, contexts in usable:
        found = Counter(number for each in contexts for number in set(each.chunks))
        turns = rollout.episode.trajectory.turns
        sides = [
            chunk.index
            for chunk in rollout.chunks
            if found[chunk.index] == 1 and any(turns[span.turn].credited for span in chunk.spans)
        ]
        ranked = sorted(sides, key=lambda number: (credit.rewards[number], number))
        if len(ranked) < 2 or credit.rewards[ranked[0]] == credit.rewards[ranked[-1]]:
            counts["pairs_tied"] += 1
            continue
        lowest, highest = ranked[0], ranked[-1]
        yield Pair(_of_chunk(contexts, highest), _of_chunk(contexts, lowest))


def _of_chunk(contexts: Sequence[Context], number: int) -> Tokens:
    """Tokens up to the end of a chunk; only the chunk's own are unmasked."""
    context = next(each for each in contexts if number in each.chunks)
    stop = len(context.chunks) - context.chunks[::-1].index(number)
    own = [int(chunk == number) for chunk in context.chunks[:stop]]
    return Tokens([*context.prompt_ids, *context.ids[:stop]], [0] * len(context.prompt_ids) + own)


def _tokens(context: Context) -> Tokens:
    return Tokens([*context.prompt_ids, *context.ids], [0] * len(context.prompt_ids) + context.mask)


def groups_of(batch: Batch, options: GrpoOptions) -> Groups:
    """The groups that a batch holds, as TRL takes them.

    With ``advantage: group`` the reward of an episode with several contexts counts in its group's
    mean, but the episode is masked: TRL has one sequence per reward. With ``advantage: credit``
    each context is a sequence of its own, with the weights of its chunks.

    Raises:
        AleError: credits and rollouts do not match.
    """
    counts: Counts = Counter(
        episodes_in_several_contexts=0,
        episodes_too_long=0,
        episodes_without_tokens=0,
        groups_equal_rewards=0,
        groups_of_one=0,
    )
    found, signal = [], False
    for group in batch.groups:
        usable = _usable(group, counts)
        rewards = {_reward(rollout) for rollout, _, _ in usable}
        counts["groups_equal_rewards"] += len(usable) > 1 and len(rewards) == 1
        if options.advantage == "credit":
            rows = [row for each in usable for row in _weighted(each, options, counts)]
            # Masked tokens have weight 0.
            trainable = any(any(row.weights or ()) for row in rows)
        else:
            rows = [_rewarded(each, options, counts) for each in usable]
            counts["groups_of_one"] += len(rows) == 1
            trainable = len(rewards) > 1 and any(any(row.mask) for row in rows)
            rows = rows if len(rows) > 1 else []
        signal = signal or trainable
        if rows:
            found.append(rows)
    return Groups(found, counts, signal=signal)


def _rewarded(usable: Usable, options: GrpoOptions, counts: Counts) -> Sampled:
    rollout, _, contexts = usable
    context, n_contexts = contexts[0], len(contexts)
    counts["episodes_in_several_contexts"] += n_contexts > 1
    counts["episodes_too_long"] += context.length > options.max_length
    trained = n_contexts == 1 and context.length <= options.max_length
    # A masked sequence needs only one token.
    n = len(context.ids) if trained else 1
    return Sampled(
        prompt_ids=context.prompt_ids,
        ids=context.ids[:n],
        mask=context.mask[:n] if trained else (0,),
        logprobs=context.logprobs[:n],
        reward=_reward(rollout),
    )


def _weighted(usable: Usable, options: GrpoOptions, counts: Counts) -> Iterator[Sampled]:
    rollout, credit, contexts = usable
    for context in contexts:
        if context.length > options.max_length:
            counts["episodes_too_long"] += 1
            continue
        weights = [credit.weights[number] if number >= 0 else 0.0 for number in context.chunks]
        yield Sampled(
            prompt_ids=context.prompt_ids,
            ids=context.ids,
            # Tokens without a chunk are masked, so that they do not count in means.
            mask=[int(number >= 0) for number in context.chunks],
            logprobs=context.logprobs,
            reward=_reward(rollout),
            weights=weights,
        )
