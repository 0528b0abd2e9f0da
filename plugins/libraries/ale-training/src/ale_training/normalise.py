"""Normalisers: the divisor Z of the sum over tokens, applied before a batch is split.

Each function takes the trajectories of one update and returns one divisor per trajectory. Weights
are divided before the split into micro-batches, so the split can't change a gradient.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen


@frozen(kw_only=True)
class Counted:
    """A normaliser's input for one trajectory, before any mask."""

    tokens: int
    """Sampled tokens that have a chunk."""
    skipped: bool
    """The credit scheme skipped this trajectory."""


Normaliser = Callable[[Sequence[Counted], float], Sequence[float]]


def by_trajectories(counted: Sequence[Counted], constant: float) -> Sequence[float]:
    """Z = N, the number of trajectories: 1/N sum_i sum_t. Our reading of IPA, arXiv:2512.24873."""
    return [float(len(counted))] * len(counted)


def by_constant(counted: Sequence[Counted], constant: float) -> Sequence[float]:
    """Z = N * constant, whatever the lengths. Dr. GRPO, arXiv:2503.20783 (generation budget)."""
    return [len(counted) * constant] * len(counted)


def by_tokens(counted: Sequence[Counted], constant: float) -> Sequence[float]:
    """Z = sum_i |o_i|: the mean over all tokens. CISPO, arXiv:2506.13585."""
    return [float(max(1, sum(each.tokens for each in counted)))] * len(counted)


def by_kept_tokens(counted: Sequence[Counted], constant: float) -> Sequence[float]:
    """Z = sum of |o_i| over the trajectories that were not skipped; over all if all were, as then
    only a KL or entropy term is left.

    Source: DAPO, arXiv:2503.14476, whose dynamic sampling removes groups without variance.
    """
    kept = sum(each.tokens for each in counted if not each.skipped)
    return [float(kept)] * len(counted) if kept else by_tokens(counted, constant)


def by_trajectory_tokens(counted: Sequence[Counted], constant: float) -> Sequence[float]:
    """Z_i = N |o_i|: the mean over trajectories of the mean over tokens. GRPO, arXiv:2402.03300."""
    return [float(len(counted) * max(1, each.tokens)) for each in counted]


NORMALISERS: Mapping[str, Normaliser] = {
    "trajectories": by_trajectories,
    "constant": by_constant,
    "tokens": by_tokens,
    "kept-tokens": by_kept_tokens,
    "trajectory-tokens": by_trajectory_tokens,
}
