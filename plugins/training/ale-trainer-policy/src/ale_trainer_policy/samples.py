"""Converts a batch to samples, one per episode, exact to the token. Pure.

Nothing is rendered or tokenised again, and no token's chunk is guessed: tokens without a recorded
chunk are counted, but not trained on.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from ale.errors import AleError
from ale.runs import SUCCESS
from ale.types import Credit, CreditedGroup, Episode, Rollout, TokenTrace
from ale_trainer_policy import gae
from ale_trainer_policy.gae import Units, units_of

Ints = gae.Ints
Floats = gae.Floats
Bools = gae.Bools

EXPERT_NEXT = "expert_next"
"""Key of `Episode.metadata`: the expert's next action where the policy began. See
`ale.protocols.Start.next_action`."""


@frozen(kw_only=True, eq=False)
class ValueTargets:
    """What the critic learns, one entry per token, (T,); only each unit's first token counts."""

    weight: Floats
    """1 / (number of units in the update) at the first token of each unit; else 0."""
    target: Floats
    """G: the lambda-return."""
    old: Floats
    """V of the critic before the step."""


@frozen(kw_only=True, eq=False)
class Sample:
    """One episode as the trainer's input: its contexts, and T target tokens.

    The arrays have shape (T,), in sampling order. Prompts and observations are in `rows` only; the
    end-of-turn token is a target like any other.
    """

    episode: str
    rows: tuple[Ints, ...]
    """Token ids of each context, from its first token: one row, and one more after each break."""
    row: Ints
    """Index into `rows`."""
    at: Ints
    """Index into the row; at least 1."""
    turn: Ints
    """Number of the token's turn in the trajectory."""
    place: Ints
    """Index among the tokens generated in that turn."""
    chunk: Ints
    """Number of the token's chunk in the trajectory."""
    weight: Floats
    """Factor on grad log pi: the chunk's credit weight, 0 for forced tokens."""
    imitation: Floats
    """Factor on grad log pi of imitated tokens, else 0."""
    sampled: Bools
    """False where the token was forced."""
    behaviour_logp: Floats
    """log mu_old, from the sampler itself, nats."""
    version: Ints
    """Version of the weights that sampled the token."""
    positive: bool
    """The sum of the trajectory's rewards, as its credit has them, is above 0."""
    skipped: bool = False
    """The credit scheme skipped this episode."""
    old_logp: Floats | None = None
    """log pi_old, nats; None if not computed."""
    reference_logp: Floats | None = None
    """log pi_ref of the KL term, nats; None if there is none."""
    starts: tuple[int, ...] = ()
    """Index in each row where the first answer of that context begins."""
    hint: Ints | None = None
    """Ids that the KL term's teacher also reads before these answers; None: no hint."""
    regularised: float = 0.0
    """Factor on the KL and entropy terms of each sampled token; 0 without such terms."""
    units: Units | None = None
    """Units for a critic; None if the credit is complete, or no token was sampled."""
    value: ValueTargets | None = None
    """None until the critic has valued the units."""

    @property
    def has_signal(self) -> bool:
        """Does any token have a nonzero weight?"""
        return bool(self.weight.any() or self.imitation.any())

    @property
    def trainable(self) -> bool:
        """Does any token count in the loss?"""
        return self.moves_policy or self.units is not None

    @property
    def moves_policy(self) -> bool:
        """Does any token count in the policy's loss, leaving the critic's aside?"""
        return self.has_signal or bool(self.regularised and self.sampled.any())

    @property
    def all_forced(self) -> bool:
        """Are there target tokens, all of them forced?"""
        return bool(self.sampled.size) and not self.sampled.any()

    @property
    def n_tokens(self) -> int:
        """Tokens in all its rows."""
        return sum(len(row) for row in self.rows)


@frozen(kw_only=True)
class SampleBatch:
    """The samples of a batch, and counts of what was left out."""

    samples: tuple[Sample, ...]
    counts: "Counter[str]" = field(factory=Counter)
    """Counts by metric name."""


def read_group(group: CreditedGroup, counts: "Counter[str]") -> Iterator[tuple[Rollout, Sample]]:
    """The samples of a group, one per rollout.

    Raises:
        AleError: as `CreditedGroup.pairs`, or a chunk has tokens that its turn lacks.
    """
    rollouts = group.group.rollouts
    rewards = {rollout.episode.reward for rollout in rollouts}
    counts["groups_empty"] += not rollouts
    counts["groups_equal_rewards"] += len(rollouts) > 1 and len(rewards) == 1
    counts["groups_all_succeeded"] += len(rollouts) > 1 and rewards == {SUCCESS}
    counts["groups_all_failed"] += len(rollouts) > 1 and rewards == {0.0}
    for rollout, credit in group.pairs():
        yield rollout, _sample(rollout, credit, counts)


def _sample(rollout: Rollout, credit: Credit, counts: "Counter[str]") -> Sample:
    episode = rollout.episode
    rows: list[Ints] = []
    starts: list[int] = []
    parts: list[dict[str, Any]] = []
    chunks_of = _chunks_by_turn(rollout, counts)
    for number, turn in enumerate(episode.trajectory.turns):
        trace = turn.completion.tokens
        if trace is None:
            counts["turns_without_tokens"] += 1
            continue
        breaks = _extend(rows, trace)
        starts += [len(trace.prompt_ids)] * (len(rows) - len(starts))
        counts["prefix_breaks"] += breaks and turn.extends
        chunk = chunks_of[number]
        known = (chunk >= 0) & (np.arange(len(chunk)) + len(trace.prompt_ids) > 0)
        counts["tokens_without_chunk"] += int(len(chunk) - known.sum())
        own = {"turn": number, "row": len(rows) - 1}
        parts.append(_columns(trace, chunk, known, own, turn.completion.forced))
    counts["episodes_skipped"] += credit.skipped is not None
    columns: dict[str, Any] = {
        name: np.concatenate([np.zeros(0, dtype), *(part[name] for part in parts)])
        for name, dtype in _COLUMNS.items()
    }
    weights = np.asarray(credit.weights, dtype=np.float64)
    earned = weights[columns["chunk"]] if len(weights) else np.zeros(0)
    return Sample(
        episode=episode.id,
        rows=tuple(rows),
        starts=tuple(starts),
        weight=np.where(columns["sampled"], earned, 0.0),
        imitation=np.zeros(len(earned)),
        positive=math.fsum(credit.rewards) > 0,
        skipped=credit.skipped is not None,
        units=units_of(
            rollout,
            credit,
            turn=columns["turn"],
            chunk=columns["chunk"],
            sampled=columns["sampled"],
        ),
        **columns,
    )


def with_expert_next(episode: Episode, sample: Sample, counts: "Counter[str]") -> Sample:
    """Add the expert's next action where the policy began, if the episode records one.

    It becomes a row of its own: the prompt that the policy answered there, and the expert's answer
    as forced tokens without weight.
    """
    recorded = episode.metadata.get(EXPERT_NEXT)
    if recorded is None:
        return sample
    trace = _expert_trace(episode, recorded)
    counts["next_turns_left_out"] += trace is None
    counts["next_turns_imitated"] += trace is not None
    if trace is None:
        return sample
    ids = np.asarray((*trace.prompt_ids, *trace.output_ids), dtype=np.int64)
    # It gets its own chunk number, as it is not an answer of the episode.
    n, own = len(trace.output_ids), int(sample.chunk.max(initial=-1)) + 1
    place = {"turn": int(recorded["turn"]), "row": len(sample.rows)}
    known = np.arange(n) + len(trace.prompt_ids) > 0
    added = _columns(trace, np.full(n, own), known, place, forced=True)
    added["weight"] = added["imitation"] = np.zeros(int(known.sum()))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(sample, name), more]) for name, more in added.items()
    }
    starts = (*sample.starts, len(trace.prompt_ids))
    return evolve(sample, rows=(*sample.rows, ids), starts=starts, **columns)


def _expert_trace(episode: Episode, recorded: Mapping[str, Any]) -> TokenTrace | None:
    """The expert's next action as tokens; None if not recorded, or if the turn is missing."""
    turns = episode.trajectory.turns
    if "left_out" in recorded or recorded["turn"] >= len(turns):
        return None
    own = turns[recorded["turn"]].completion.tokens
    if own is None:
        return None
    return TokenTrace(
        prompt_ids=own.prompt_ids,
        output_ids=tuple(recorded["output_ids"]),
        logprobs=tuple(recorded["logprobs"]),
        policy_versions=tuple(recorded["policy_versions"]),
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
    """Extend the last row by a turn, or start a new one; True if the prompt broke the prefix."""
    ids = np.asarray((*trace.prompt_ids, *trace.output_ids), dtype=np.int64)
    if rows and len(rows[-1]) <= len(trace.prompt_ids):
        last = rows[-1]
        if np.array_equal(ids[: len(last)], last):
            rows[-1] = ids
            return False
    rows.append(ids)
    return len(rows) > 1


def _chunks_by_turn(rollout: Rollout, counts: "Counter[str]") -> list[Ints]:
    """For each turn the chunk number of each token, -1 if no chunk covers it."""
    traces = [turn.completion.tokens for turn in rollout.episode.trajectory.turns]
    lengths = [0 if trace is None else len(trace.output_ids) for trace in traces]
    found = [np.full(length, -1, np.int64) for length in lengths]
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
