"""Generalised advantage estimation over the steps of an episode, in numpy.

A step (unit) is the sampled tokens of a token, a turn or a chunk. Its state is everything before
its first token. Forced tokens and turns that are not credited are not steps of the policy.
"""

from collections.abc import Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from ale.types import Credit, Gae, Rollout

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@frozen(kw_only=True, eq=False)
class Units:
    """The U units of an episode, made up of S of its T tokens."""

    token: Ints
    """Indices of the tokens that are in a unit: (S,)."""
    unit: Ints
    """The unit of each of these tokens, ascending: (S,)."""
    rewards: Floats
    """r of each unit: (U,)."""
    gae: Gae

    @property
    def first(self) -> Ints:
        """Index of each unit's first token: (U,)."""
        starts = np.flatnonzero(np.diff(self.unit, prepend=-1))
        found: Ints = self.token[starts]
        return found

    @property
    def end(self) -> Ints:
        """Index of the last token, whose own state is valued, if the episode was cut off: (0,) or
        (1,).
        """
        return self.token[-1:] if self.gae.truncated else self.token[:0]


def units_of(
    rollout: Rollout, credit: Credit, *, turn: Ints, chunk: Ints, sampled: Bools
) -> Units | None:
    """The units of an episode; None if it has none or its credit has no `gae`.

    A chunk's reward is earned at its last token or, if it has none, at the last token before it.

    Args:
        turn: the turn of each token, (T,); `chunk` and `sampled` have one entry per token too.
    """
    if credit.gae is None:
        return None
    turns = rollout.episode.trajectory.turns
    credited = np.array(
        [any(turns[span.turn].credited for span in each.spans) for each in rollout.chunks],
        dtype=np.bool_,
    )
    token = np.flatnonzero(sampled & credited[chunk]) if len(chunk) else np.zeros(0, np.int64)
    if not len(token):
        return None
    key = {"token": token, "turn": turn[token], "chunk": chunk[token]}[credit.gae.unit]
    unit = np.cumsum(np.diff(key, prepend=key[0]) != 0)
    rewards = np.zeros(int(unit[-1]) + 1)
    for number, reward in enumerate(credit.rewards):
        at = int(np.searchsorted(chunk[token], number, side="right")) - 1
        if at >= 0:
            rewards[unit[at]] += reward
    return Units(token=token, unit=unit, rewards=rewards, gae=credit.gae)


def advantages(rewards: Floats, values: Floats, after: float, gamma: float, lam: float) -> Floats:
    """A_k = delta_k + gamma lam A_(k+1), with delta_k = r_k + gamma V(s_(k+1)) - V(s_k).

    Args:
        rewards: r_1 ... r_U.
        values: V(s_1) ... V(s_U), of the states before each unit.
        after: V(s_(U+1)): 0 where the episode ended, the value of its last state where it was cut
            off.
        gamma: discount per unit.
        lam: lambda.

    Returns:
        (U,). A + V are the targets of the value loss, the lambda-returns; with lambda = 1 they are
        the discounted rewards, `after` included.

    Source: arXiv:1506.02438, Eq. 16, in the recursive form of arXiv:1707.06347, Eq. 11 and 12.
    """
    found = np.zeros(len(rewards))
    following, value = 0.0, after
    for k in range(len(rewards) - 1, -1, -1):
        delta = rewards[k] + gamma * value - values[k]
        following = delta + gamma * lam * following
        found[k], value = following, values[k]
    return found


def whitened(values: Sequence[Floats]) -> list[Floats]:
    """(A - mean) / std over all values; unchanged if all are equal."""
    flat = np.concatenate([np.zeros(0), *values])
    deviation = float(flat.std()) if len(flat) else 0.0
    if deviation == 0.0:
        return list(values)
    mean = float(flat.mean())
    return [(each - mean) / deviation for each in values]
