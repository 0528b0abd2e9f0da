"""Credit from the scores of steps: process rewards beside the outcome."""

import math
from collections.abc import Sequence
from itertools import pairwise

from ale.types import Credit, Group, Rollout
from ale_credit.advantages import mean_centred
from ale_credit.options import StepScoresOptions
from ale_credit.returns import NO_CHUNKS, returns_to_go, reward_of, skipped, terminal_rewards

Scores = Sequence[float | None]
"""v_1 ... v_K of the chunks of an episode; None where the scorer abstained."""


def shaping(scores: Scores, gamma: float, start: float = 0.0) -> tuple[float, ...]:
    """F_k = gamma * Phi(s_(k+1)) - Phi(s_k), the shaping reward of chunk k.

    Phi(s_(k+1)) is the score of chunk k, or Phi(s_k) if the scorer abstained; it is 0 at the end
    and `start` at the start. So a discounted sum of them is -start in every episode, whatever the
    scores are: the best policy stays the best, and so does the order of any two.

    Args:
        scores: v_1 ... v_K; may be empty.
        gamma: discount per chunk, in (0, 1].
        start: the same for all episodes of a task.

    Returns:
        K values, first chunk first, each in [-1, 1].

    Source: Ng, Harada, Russell, 1999 (policy invariance under reward transformations), with a
    potential of the history.
    """
    potentials = [start]
    for score in scores[:-1]:
        potentials.append(potentials[-1] if score is None else score)
    potentials.append(0.0)
    return tuple(
        gamma * after - before for before, after in pairwise(potentials[: len(scores) + 1])
    )


def centred(scores: Scores, mean: float) -> tuple[float, ...]:
    """r_k = v_k - mean, and 0 where the scorer abstained.

    Source: process supervision in GRPO, arXiv:2402.03300, 4.1.3, without the division by the
    standard deviation. Without the mean, longer episodes would earn more.
    """
    return tuple(0.0 if score is None else score - mean for score in scores)


def lowest_to_go(scores: Scores) -> tuple[float | None, ...]:
    """m_k = min(v_k, ..., v_K) of those that have a value; None if none of them has.

    Source: min-form credit assignment, PURE, arXiv:2504.15275, in the limit of temperature 0.
    """
    found: list[float | None] = []
    lowest: float | None = None
    for score in reversed(scores):
        if score is not None:
            lowest = score if lowest is None else min(lowest, score)
        found.append(lowest)
    return tuple(reversed(found))


def decayed(rewards: Sequence[float], decay: float) -> tuple[float, ...]:
    """A_k = r_k + decay * A_(k+1), with A_(K+1) = 0: the sum of GAE, arXiv:1506.02438, Eq. 16.

    Args:
        rewards: r_1 ... r_K, here differences of values; may be empty.
        decay: gamma * lambda, in [0, 1].
    """
    found: list[float] = []
    for reward in reversed(rewards):
        found.append(reward + decay * (found[-1] if found else 0.0))
    return tuple(reversed(found))


class StepScores:
    """The weight of chunk k is G_k = P_k + gamma^(K-k) * outcome * (R - b).

    R is the reward of the episode, b the mean of its group or 0, and P_k the process part, with the
    factor ``process``, in one of three forms:

    - ``potential``: the discounted sum of `shaping` from chunk k on, which is -Phi(s_k): the score
      of the chunk before is the baseline of this one, so b is 0 unless an option says otherwise;
    - ``sum``: the discounted sum from chunk k on of each score less the group's mean (`centred`);
    - ``min``: the lowest score from chunk k on (`lowest_to_go`), less the mean of the lowest scores
      of the group's episodes.

    With ``lam`` below 1, the weight of a chunk is `decayed` by gamma * lam of what `shaping` and
    the outcome give to it and to those after it; with 0, what it adds to the score itself. Then the
    potential of the start is the mean of the group's first scores, as all begin in one state.
    """

    def __init__(self, options: StepScoresOptions) -> None:
        self._options = options

    @property
    def reads(self) -> Sequence[str]:
        """The scorer."""
        return (self._options.scorer,)

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout."""
        scores = [self._scores(rollout) for rollout in group.rollouts]
        rule, reason = self._options.abstained, None
        if rule != "chunk" and any(score is None for each in scores for score in each):
            reason = f"'{self._options.scorer}' has not scored every chunk of the group"
            scores = [[None] * len(each) for each in scores]
        rewards = [reward_of(rollout.episode) for rollout in group.rollouts]
        if rewards and self._baseline(scores) == "group":
            rewards = list(mean_centred(rewards))
        process = self._process(scores)
        return [
            self._credit(rollout, reward, part, reason if rule == "skip" else None, added)
            for rollout, reward, part, added in zip(
                group.rollouts, rewards, process, self._added(scores), strict=True
            )
        ]

    def _added(self, scores: Sequence[Scores]) -> list[tuple[float, ...] | None]:
        """The share of each chunk in the score, for a lambda below 1; else None."""
        if self._options.lam == 1 or not _any(scores):
            return [None] * len(scores)
        start = _mean([each[0] for each in scores if each])
        return [shaping(each, self._options.gamma, start) for each in scores]

    def _baseline(self, scores: Sequence[Scores]) -> str:
        if self._options.baseline is not None:
            return self._options.baseline
        return "none" if self._options.form == "potential" and _any(scores) else "group"

    def _scores(self, rollout: Rollout) -> Scores:
        found = rollout.scores.get(self._options.scorer)
        return [None] * len(rollout.chunks) if found is None else [each.value for each in found]

    def _process(self, scores: Sequence[Scores]) -> list[tuple[float, ...]]:
        """P_k / process of each chunk of each episode."""
        gamma = self._options.gamma
        if self._options.form == "potential":
            return [returns_to_go(shaping(each, gamma), gamma) for each in scores]
        if self._options.form == "sum":
            mean = _mean([score for each in scores for score in each])
            return [returns_to_go(centred(each, mean), gamma) for each in scores]
        lowest = [lowest_to_go(each) for each in scores]
        mean = _mean([each[0] for each in lowest if each])
        return [centred(each, mean) for each in lowest]

    def _credit(
        self,
        rollout: Rollout,
        reward: float,
        process: Sequence[float],
        reason: str | None,
        added: Sequence[float] | None,
    ) -> Credit:
        options, n = self._options, len(rollout.chunks)
        terminal = terminal_rewards(options.outcome * reward, n)
        outcome = returns_to_go(terminal, options.gamma)
        returns = tuple(options.process * p + r for p, r in zip(process, outcome, strict=True))
        weights = returns
        if added is not None:
            rewards = [options.process * f + r for f, r in zip(added, terminal, strict=True)]
            weights = decayed(rewards, options.gamma * options.lam)
        if reason is not None:
            returns = weights = (0.0,) * n
        following = (*returns[1:], 0.0)[:n]
        return Credit(
            episode_id=rollout.episode.id,
            scheme="step-scores",
            rewards=tuple(
                g - options.gamma * after for g, after in zip(returns, following, strict=True)
            ),
            returns=returns,
            weights=weights,
            skipped=NO_CHUNKS if not n else reason or skipped(weights, "every weight is 0"),
        )


def _any(scores: Sequence[Scores]) -> bool:
    """Has any chunk of a group a score?"""
    return any(score is not None for each in scores for score in each)


def _mean(scores: Scores) -> float:
    """Mean of those that have a value; 0 if none has, which is then not used."""
    values = [score for score in scores if score is not None]
    return math.fsum(values) / len(values) if values else 0.0
