"""From a batch to samples: one per episode, exact to the token. Pure.

Nothing is rendered or tokenised again, and no token's chunk is guessed: what the records don't say
is not trained on, and counted.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from ale.errors import AleError
from ale.types import Credit, CreditedGroup, Episode, Rollout, TokenTrace, Trajectory

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EXPERT_NEXT = "expert_next"
"""Key of `Episode.metadata`: what the expert would have said where the policy began. See
`ale.protocols.Start.next_action`."""


@frozen(kw_only=True, eq=False)
class Sample:
    """One episode as a trainer needs it: its contexts, and T tokens to be trained on.

    The arrays of the tokens have shape (T,), in the order in which they were sampled. Prompts and
    observations are in `rows` only; the token that ends a turn is one like any other.
    """

    episode: str
    rows: tuple[Ints, ...]
    """Token ids of each context, from its first token: one row, and one more after each break."""
    row: Ints
    """Index into `rows`."""
    at: Ints
    """Index into that row; at least 1."""
    turn: Ints
    """Number of its turn in the trajectory."""
    place: Ints
    """Index among the tokens that its turn generated."""
    chunk: Ints
    """Number of its chunk in the trajectory."""
    weight: Floats
    """What multiplies grad log pi: the credit's, 0 where the token was forced."""
    imitation: Floats
    """What multiplies grad log pi where the token was forced and is to be imitated, else 0."""
    sampled: Bools
    """False where the token was forced."""
    behaviour_logp: Floats
    """log mu_old: of the sampler itself, nats."""
    version: Ints
    """Of the weights that it was sampled from."""
    positive: bool
    """The sum of the trajectory's rewards, as its credit has them, is above 0."""
    skipped: bool = False
    """The credit scheme said that it teaches nothing."""
    old_logp: Floats | None = None
    """log pi_old, nats, where the trainer has it."""

    @property
    def teaches(self) -> bool:
        """Does any token have a weight?"""
        return bool(self.weight.any() or self.imitation.any())

    @property
    def all_forced(self) -> bool:
        """Has it tokens, and none that was sampled?"""
        return bool(self.sampled.size) and not self.sampled.any()

    @property
    def n_tokens(self) -> int:
        """Tokens in all its rows."""
        return sum(len(row) for row in self.rows)


@frozen(kw_only=True)
class Read:
    """What a batch holds."""

    samples: tuple[Sample, ...]
    counts: "Counter[str]" = field(factory=Counter)
    """What was left out, by the name of its metric."""


def read_group(group: CreditedGroup, counts: "Counter[str]") -> Iterator[tuple[Rollout, Sample]]:
    """The samples of a group, one per rollout.

    Raises:
        AleError: credits, chunks and episodes don't belong together, or a number is not finite.
    """
    rollouts = group.group.rollouts
    if len(group.credits) != len(rollouts):
        raise AleError(
            f"{len(group.credits)} credits for {len(rollouts)} rollouts "
            f"of task {group.group.task_id}"
        )
    rewards = {rollout.episode.reward for rollout in rollouts}
    counts["groups_empty"] += not rollouts
    counts["groups_equal_rewards"] += len(rollouts) > 1 and len(rewards) == 1
    for rollout, credit in zip(rollouts, group.credits, strict=True):
        yield rollout, _sample(rollout, credit, counts)


def _sample(rollout: Rollout, credit: Credit, counts: "Counter[str]") -> Sample:
    _check(rollout, credit)
    episode = rollout.episode
    rows: list[Ints] = []
    parts: list[dict[str, Any]] = []
    chunks_of = _chunks_by_turn(rollout, counts)
    for number, turn in enumerate(episode.trajectory.turns):
        trace = turn.completion.tokens
        if trace is None:
            counts["turns_without_tokens"] += 1
            continue
        breaks = _extend(rows, trace)
        counts["prefix_breaks"] += breaks and not turn.fresh_context
        chunk = chunks_of[number]
        known = (chunk >= 0) & (np.arange(len(chunk)) + len(trace.prompt_ids) > 0)
        counts["tokens_without_chunk"] += int(len(chunk) - known.sum())
        own = {"turn": number, "row": len(rows) - 1}
        parts.append(_columns(trace, chunk, known, own, turn.completion.forced))
    counts["episodes_skipped"] += credit.skipped is not None
    columns = {name: _joined(parts, name, dtype) for name, dtype in _COLUMNS.items()}
    weights = np.asarray(credit.weights, dtype=np.float64)
    earned = weights[columns["chunk"]] if len(weights) else np.zeros(0)
    return Sample(
        episode=episode.id,
        rows=tuple(rows),
        weight=np.where(columns["sampled"], earned, 0.0),
        imitation=np.zeros(len(earned)),
        positive=math.fsum(credit.rewards) > 0,
        skipped=credit.skipped is not None,
        **columns,
    )


def with_expert_next(episode: Episode, sample: Sample, counts: "Counter[str]") -> Sample:
    """The sample with what the expert would have said where the policy began, if that is known.

    It is a row of its own, after the prompt that the policy answered there: forced tokens, which
    have no weight.
    """
    said = episode.metadata.get(EXPERT_NEXT)
    if said is None:
        return sample
    trace = _written(episode, said)
    counts["next_turns_left_out"] += trace is None
    counts["next_turns_imitated"] += trace is not None
    if trace is None:
        return sample
    ids = np.asarray((*trace.prompt_ids, *trace.output_ids), dtype=np.int64)
    # No chunk of the episode: it is not one of its answers.
    n, own = len(trace.output_ids), int(sample.chunk.max(initial=-1)) + 1
    place = {"turn": int(said["turn"]), "row": len(sample.rows)}
    known = np.arange(n) + len(trace.prompt_ids) > 0
    added = _columns(trace, np.full(n, own), known, place, forced=True)
    added["weight"] = added["imitation"] = np.zeros(int(known.sum()))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(sample, name), more]) for name, more in added.items()
    }
    return evolve(sample, rows=(*sample.rows, ids), **columns)


def _written(episode: Episode, said: Mapping[str, Any]) -> TokenTrace | None:
    """The expert's next answer; None where the model could not write it, or has not answered."""
    turns = episode.trajectory.turns
    if "left_out" in said or said["turn"] >= len(turns):
        return None
    own = turns[said["turn"]].completion.tokens
    if own is None:
        return None
    return TokenTrace(
        prompt_ids=own.prompt_ids,
        output_ids=tuple(said["output_ids"]),
        logprobs=tuple(said["logprobs"]),
        policy_versions=tuple(said["policy_versions"]),
    )


_COLUMNS: dict[str, Any] = {
    "row": np.int64,
    "at": np.int64,
    "turn": np.int64,
    "place": np.int64,
    "chunk": np.int64,
    "sampled": np.bool_,
    "behaviour_logp": np.float64,
    "version": np.int64,
}


def _joined(parts: Sequence[dict[str, Any]], name: str, dtype: Any) -> Any:
    return np.concatenate([np.zeros(0, dtype), *(part[name] for part in parts)])


def _columns(
    trace: TokenTrace, chunk: Ints, known: Bools, own: dict[str, int], forced: bool
) -> dict[str, Any]:
    n = len(trace.output_ids)
    start = len(trace.prompt_ids)
    return {
        **{name: np.full(n, number, np.int64)[known] for name, number in own.items()},
        "place": np.arange(n, dtype=np.int64)[known],
        "at": np.arange(start, start + n, dtype=np.int64)[known],
        "chunk": chunk[known],
        "sampled": np.full(n, not forced)[known],
        "behaviour_logp": np.asarray(trace.logprobs, dtype=np.float64)[known],
        "version": np.asarray(trace.policy_versions, dtype=np.int64)[known],
    }


def _extend(rows: list[Ints], trace: TokenTrace) -> bool:
    """Lay a turn's tokens over the last row, or begin a new one; True where the last one broke."""
    ids = np.asarray((*trace.prompt_ids, *trace.output_ids), dtype=np.int64)
    if rows and len(rows[-1]) <= len(trace.prompt_ids):
        last = rows[-1]
        if np.array_equal(ids[: len(last)], last):
            rows[-1] = ids
            return False
    rows.append(ids)
    return len(rows) > 1


def _chunks_by_turn(rollout: Rollout, counts: "Counter[str]") -> list[Ints]:
    """For each turn the chunk of each of its tokens, -1 where the chunks don't say."""
    trajectory = rollout.episode.trajectory
    found = [np.full(_n_tokens(trajectory, i), -1, np.int64) for i in range(len(trajectory.turns))]
    for number, chunk in enumerate(rollout.chunks):
        covered = 0
        for span in chunk.spans:
            if span.tokens is None:
                continue
            start, stop = span.tokens
            if not 0 <= start <= stop <= len(found[span.turn]):
                raise AleError(
                    f"chunk {number} of episode {rollout.episode.id} has tokens {start} to {stop} "
                    f"of turn {span.turn}, which has {len(found[span.turn])}"
                )
            found[span.turn][start:stop] = number
            covered += stop - start
        counts["chunks_empty"] += covered == 0
    return found


def _n_tokens(trajectory: Trajectory, turn: int) -> int:
    trace = trajectory.turns[turn].completion.tokens
    return 0 if trace is None else len(trace.output_ids)


def _check(rollout: Rollout, credit: Credit) -> None:
    episode = rollout.episode
    if credit.episode_id != episode.id:
        raise AleError(f"credit of episode {credit.episode_id} given for episode {episode.id}")
    if episode.reward is None:
        raise AleError(f"episode {episode.id} broke; it must not be credited")
    if len(credit.weights) != len(rollout.chunks):
        raise AleError(
            f"episode {episode.id} has {len(rollout.chunks)} chunks, and its credit by "
            f"{credit.scheme} {len(credit.weights)} weights"
        )
    if not all(math.isfinite(value) for value in (*credit.weights, *credit.rewards)):
        raise AleError(f"credit of episode {episode.id} by {credit.scheme} is not finite")
