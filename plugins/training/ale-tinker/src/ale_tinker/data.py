"""A batch as rows: each context of each episode, exact to the token. Pure.

Nothing is rendered or tokenised again, and no token's chunk is guessed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from ale.types import Batch, Credit, Rollout
from ale_training.contexts import NO_CHUNK, Context, contexts_of
from ale_training.normalise import NORMALISERS, Counted


@frozen(kw_only=True, eq=False)
class Row:
    """A context of T + 1 tokens. The arrays have shape (T,): entry i is of token i + 1."""

    tokens: tuple[int, ...]
    """Token ids, T + 1."""
    logprobs: Any
    """log mu of sampled tokens, nats; 0 of observations and forced tokens."""
    weight: Any
    """Credit of the token's chunk over Z; 0 of tokens that were not sampled."""
    chunk: Any
    """Number of the token's chunk in its trajectory; `NO_CHUNK` if it was not sampled."""
    trajectory: int
    """Number of its trajectory in the batch."""
    positive: bool
    """The sum of the trajectory's rewards is above 0."""

    @property
    def trained(self) -> Any:
        """Booleans, (T,): the sampled tokens that have a chunk."""
        return self.chunk != NO_CHUNK


@frozen(kw_only=True)
class Rows:
    """The rows of a batch that have a gradient, and counts of what was left out."""

    rows: tuple[Row, ...]
    counts: Mapping[str, float]


def rows_of(batch: Batch, normaliser: str) -> Rows:
    """The rows of a batch: those of trajectories of which some token has a weight.

    Args:
        batch: credited episodes.
        normaliser: of `NORMALISERS`; Z is over all trajectories with sampled tokens, also those
            without a weight.

    Raises:
        AleError: credits and rollouts do not match.
    """
    pairs = [pair for group in batch.groups for pair in group.pairs()]
    found = [_rows(number, *pair) for number, pair in enumerate(pairs)]
    sampled = [sum(int(row.trained.sum()) for row in rows) for rows in found]
    own = [number for number, n in enumerate(sampled) if n]
    counted = [
        Counted(tokens=sampled[number], skipped=pairs[number][1].skipped is not None)
        for number in own
    ]
    divisors = dict(zip(own, NORMALISERS[normaliser](counted, 1.0), strict=True))
    kept = [number for number in own if any(row.weight.any() for row in found[number])]
    rows = [
        evolve(row, weight=row.weight / divisors[number])
        for number in kept
        for row in found[number]
    ]
    rows = [row for row in rows if row.trained.any()]
    return Rows(
        rows=tuple(rows),
        counts={
            "trajectories": float(len(pairs)),
            "trajectories_without_signal": float(len(pairs) - len(kept)),
            "episodes_skipped": float(sum(credit.skipped is not None for _, credit in pairs)),
            "tokens_trained": float(sum(sampled[number] for number in kept)),
            "tokens_in_rows": float(sum(len(row.tokens) for row in rows)),
        },
    )


def _rows(number: int, rollout: Rollout, credit: Credit) -> Sequence[Row]:
    positive = math.fsum(credit.rewards) > 0
    return [
        _row(context, np.asarray([*credit.weights, 0.0]), number, positive)
        for context in contexts_of(rollout)
    ]


def _row(context: Context, weights: Any, number: int, positive: bool) -> Row:
    """A row; the last entry of `weights` is that of tokens without a chunk, `NO_CHUNK`."""
    before = len(context.prompt_ids)
    first = max(0, 1 - before)  # nothing predicts the first token of a context
    chunk = np.asarray([NO_CHUNK] * (before - 1) + context.chunks[first:], dtype=np.int64)
    logprobs = np.asarray([0.0] * (before - 1) + context.logprobs[first:])
    return Row(
        tokens=(*context.prompt_ids, *context.ids),
        logprobs=logprobs,
        weight=weights[chunk],
        chunk=chunk,
        trajectory=number,
        positive=positive,
    )
