"""Credit for attempts at a task, each of which may repair the one before."""

import math
from collections.abc import Sequence
from itertools import chain

from ale.types import Credit, Group, Rollout, replace
from ale_credit.options import RepairOptions
from ale_credit.returns import (
    error_counts,
    returns_to_go,
    reward_of,
    skipped,
    terminal_rewards,
)


class Repair:
    """The weight of attempt k is G_k - b, with G_k = r_k + gamma * G_(k+1).

    The last attempt earns r_K = R, or (1 + repair_bonus) * R if R is positive and an earlier
    attempt failed (a call in its last turn did); the others earn 0. So a failed attempt gets a
    share of what its repair earned, but less than a success: gamma * (1 + repair_bonus) is below 1.

    Source: the discounted sum over later attempts, and 0.4 as gamma, are those of
    arXiv:2507.11948 (multi-turn training on kernels); the bonus is this package's.
    """

    def __init__(self, options: RepairOptions) -> None:
        self._options = options

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout. Chunks should be attempts, from the chunker `attempt`."""
        rewards = [self._rewards(rollout) for rollout in group.rollouts]
        returns = [returns_to_go(earned, self._options.gamma) for earned in rewards]
        baseline = self._baseline(group, list(chain.from_iterable(returns)))
        return [
            self._credit(rollout, earned, found, baseline)
            for rollout, earned, found in zip(group.rollouts, rewards, returns, strict=True)
        ]

    def _rewards(self, rollout: Rollout) -> tuple[float, ...]:
        reward = reward_of(rollout.episode)
        # An attempt is judged by its last turn: what failed before that was part of the work.
        judged = [replace(chunk, spans=chunk.spans[-1:]) for chunk in rollout.chunks[:-1]]
        if reward > 0.0 and any(error_counts(rollout.episode.trajectory, judged)):
            reward *= 1.0 + self._options.repair_bonus
        return terminal_rewards(reward, len(rollout.chunks))

    def _baseline(self, group: Group, returns: Sequence[float]) -> float:
        if self._options.baseline == "batch":
            return group.batch.mean_reward
        if self._options.baseline == "none" or not returns:
            return 0.0
        # If all returns are equal, use exactly that: the mean could differ by a rounding error.
        equal = min(returns) == max(returns)
        return returns[0] if equal else math.fsum(returns) / len(returns)

    def _credit(
        self,
        rollout: Rollout,
        rewards: tuple[float, ...],
        returns: tuple[float, ...],
        baseline: float,
    ) -> Credit:
        weights = tuple(value - baseline for value in returns)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="repair",
            rewards=rewards,
            returns=returns,
            weights=weights,
            skipped=skipped(weights, "every return of the episode equals the baseline"),
        )
