"""Schemes that compare the rollouts of one task; every chunk of an episode has the same weight."""

import math
from collections.abc import Sequence
from typing import Literal

from ale.types import Credit, Group, Rollout
from ale_credit.advantages import group_normalised, leave_one_out, mean_centred
from ale_credit.options import GrpoOptions
from ale_credit.returns import (
    NO_CHUNKS,
    overlong_penalty,
    reward_of,
    sampled_tokens,
    terminal_rewards,
)

_ROUNDING = 1e-12
"""Rewards that differ by no more than this are equal: 0.1 + 0.2 is not 0.3 for a computer."""


def _nothing_to_compare(rewards: Sequence[float]) -> str | None:
    if len(rewards) < 2:
        return "the group has only one graded rollout"
    if math.isclose(min(rewards), max(rewards), rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        return f"all {len(rewards)} rewards of the group are {rewards[0]:g}"
    return None


class _GroupScheme:
    """A group of one, or with all rewards equal, is skipped: its weights are exactly 0."""

    name: str
    compares_rollouts: Literal[True] = True

    def advantages(self, rewards: Sequence[float]) -> Sequence[float]:
        """One advantage per reward; called only if at least two rewards differ."""
        raise NotImplementedError

    def reward(self, rollout: Rollout) -> float:
        """R of an episode, before it is compared with the group."""
        return reward_of(rollout.episode)

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, relative to the group."""
        rewards = [self.reward(rollout) for rollout in group.rollouts]
        reason = _nothing_to_compare(rewards)
        advantages = self.advantages(rewards) if reason is None else [0.0] * len(rewards)
        return [
            self._credit(rollout, reward, advantage, reason)
            for rollout, reward, advantage in zip(group.rollouts, rewards, advantages, strict=True)
        ]

    def _credit(
        self, rollout: Rollout, reward: float, advantage: float, reason: str | None
    ) -> Credit:
        n_chunks = len(rollout.chunks)
        # An episode whose reward is the group's mean has an advantage of 0 but is not skipped: DAPO
        # counts its tokens, and leaves out only groups in which there is nothing to compare.
        return Credit(
            episode_id=rollout.episode.id,
            scheme=self.name,
            rewards=terminal_rewards(reward, n_chunks),
            returns=(reward,) * n_chunks,
            weights=(advantage,) * n_chunks,
            skipped=reason if n_chunks else NO_CHUNKS,
        )


class Grpo(_GroupScheme):
    """See `group_normalised`."""

    name = "grpo"

    def __init__(self, options: GrpoOptions) -> None:
        self._options = options

    def reward(self, rollout: Rollout) -> float:
        """The episode's reward, less the penalty for its length."""
        reward, overlong = reward_of(rollout.episode), self._options.overlong
        if overlong is None:
            return reward
        n_tokens = sampled_tokens(rollout.episode.trajectory)
        return reward + overlong_penalty(n_tokens, overlong.limit, overlong.buffer)

    def advantages(self, rewards: Sequence[float]) -> Sequence[float]:
        """(R - mean) / (std + eps)."""
        return group_normalised(rewards, self._options.std, self._options.eps)


class DrGrpo(_GroupScheme):
    """See `mean_centred`."""

    name = "dr-grpo"

    def advantages(self, rewards: Sequence[float]) -> Sequence[float]:
        """R - mean."""
        return mean_centred(rewards)


class Rloo(_GroupScheme):
    """See `leave_one_out`."""

    name = "rloo"

    def advantages(self, rewards: Sequence[float]) -> Sequence[float]:
        """R - mean of the others."""
        return leave_one_out(rewards)
