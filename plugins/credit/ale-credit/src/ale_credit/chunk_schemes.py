"""Schemes that give the chunks of an episode different credit."""

from collections.abc import Sequence

from ale.runs import SUCCESS
from ale.types import Credit, Group, Rollout
from ale_credit.options import (
    FilteredImitationOptions,
    IpaLiteOptions,
    IpaOptions,
    ReinforceOptions,
)
from ale_credit.returns import (
    NO_CHUNKS,
    error_counts,
    less_penalties,
    position_weights,
    returns_to_go,
    reward_of,
    skipped,
    terminal_rewards,
)

_DEFAULT_ERROR_PENALTY = 0.1
_DEFAULT_DECAY = 0.9


class Ipa:
    """The weight of a chunk is its return: G_k = r_k + gamma * G_(k+1).

    There is no baseline and no normalisation: the rewards of other rollouts have no influence.

    Source: arXiv:2512.24873, Eq. 7.
    """

    def __init__(self, options: IpaOptions) -> None:
        self._options = options
        penalty = options.error_penalty
        self._penalty = _DEFAULT_ERROR_PENALTY if penalty is None else penalty

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, each from its own reward alone."""
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        rewards = terminal_rewards(self._reward(rollout), len(rollout.chunks))
        if self._options.per_chunk_rewards == "terminal-and-errors":
            errors = error_counts(rollout.episode.trajectory, rollout.chunks)
            rewards = less_penalties(rewards, errors, self._penalty)
        returns = returns_to_go(rewards, self._options.gamma)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="ipa",
            rewards=rewards,
            returns=returns,
            weights=returns,
            skipped=skipped(returns, "every return is 0"),
        )

    def _reward(self, rollout: Rollout) -> float:
        reward = reward_of(rollout.episode)
        if self._options.terminal_reward == "all-or-nothing":
            reward = 1.0 if reward == 1.0 else 0.0
        finished = rollout.episode.trajectory.stop.reason == "finished"
        if self._options.unfinished == "failure" and not finished:
            reward = 0.0
        return reward if reward != 0.0 else self._options.failure_reward


class IpaLite:
    """ALE-lite's approximation of IPA, not the paper's estimator.

    The reward of chunk k is R * w_k - error_penalty * (its failed tool calls), with weights w_k
    that grow with the position (`position_weights`). Its advantage, the weight, is that reward
    less the mean reward of the batch's episodes. Nothing is summed over later chunks, so `returns`
    repeats `rewards`.
    """

    def __init__(self, options: IpaLiteOptions) -> None:
        self._penalty = options.error_penalty
        self._decay = options.decay
        if options.weighting == "geometric" and options.decay is None:
            self._decay = _DEFAULT_DECAY

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, against the mean reward of the batch."""
        return [self._credit(rollout, group.batch.mean_reward) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout, baseline: float) -> Credit:
        reward = reward_of(rollout.episode)
        shares = [reward * weight for weight in position_weights(len(rollout.chunks), self._decay)]
        errors = error_counts(rollout.episode.trajectory, rollout.chunks)
        rewards = less_penalties(shares, errors, self._penalty)
        weights = tuple(earned - baseline for earned in rewards)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="ipa-lite",
            rewards=rewards,
            returns=rewards,
            weights=weights,
            skipped=skipped(weights, "every chunk earned the batch's mean reward"),
        )


class Reinforce:
    """The weight of a chunk is its return, less a constant: G_k - b, G_k = gamma^(K-k) * R.

    With ``baseline: batch`` b is the mean reward of all n episodes credited together, this one
    included, which shrinks the expected gradient by the factor 1 - 1/n.

    Source: Williams, 1992 (Machine Learning 8, REINFORCE and its reinforcement baseline).
    """

    def __init__(self, options: ReinforceOptions) -> None:
        self._options = options

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout."""
        baseline = group.batch.mean_reward if self._options.baseline == "batch" else 0.0
        return [self._credit(rollout, baseline) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout, baseline: float) -> Credit:
        rewards = terminal_rewards(reward_of(rollout.episode), len(rollout.chunks))
        returns = returns_to_go(rewards, self._options.gamma)
        weights = tuple(value - baseline for value in returns)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="reinforce",
            rewards=rewards,
            returns=returns,
            weights=weights,
            skipped=skipped(weights, "every return equals the baseline"),
        )


class WeightOne:
    """The weight 1 for every chunk of every episode, whatever it earned.

    The control for a claim that rewards taught something: it imitates everything that was sampled,
    which can sharpen the policy, and uses no reward. The returns repeat the weights.
    """

    def assign(self, group: Group) -> Sequence[Credit]:
        """Weights of 1."""
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        ones = (1.0,) * len(rollout.chunks)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="weight-one",
            rewards=ones,
            returns=ones,
            weights=ones,
            skipped=None if ones else NO_CHUNKS,
        )


class NoCredit:
    """The weight 0 for every chunk: what an episode earned teaches nothing.

    For episodes from which only the objective's KL or entropy term learns, as in distillation. None
    is `skipped`: its tokens count in every normaliser.
    """

    def assign(self, group: Group) -> Sequence[Credit]:
        """Weights of 0."""
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        zeros = (0.0,) * len(rollout.chunks)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="none",
            rewards=zeros,
            returns=zeros,
            weights=zeros,
            skipped=None if zeros else NO_CHUNKS,
        )


class FilteredImitation:
    """The weight 1 for every chunk of a success, and 0 for every other episode.

    The control for a claim that credit within an episode, or the weight of failures, helps: with an
    objective without a ratio, its gradient is that of imitating the policy's own successes. A
    success is a reward of 1. The returns repeat the weights.
    """

    def __init__(self, options: FilteredImitationOptions) -> None:
        self._options = options

    def assign(self, group: Group) -> Sequence[Credit]:
        """Weights of 1 or 0."""
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        kept = reward_of(rollout.episode) == SUCCESS
        if self._options.unfinished == "failure":
            kept = kept and rollout.episode.trajectory.stop.reason == "finished"
        weights = (1.0 if kept else 0.0,) * len(rollout.chunks)
        return Credit(
            episode_id=rollout.episode.id,
            scheme="filtered-imitation",
            rewards=weights,
            returns=weights,
            weights=weights,
            skipped=skipped(weights, "the episode is no success"),
        )
