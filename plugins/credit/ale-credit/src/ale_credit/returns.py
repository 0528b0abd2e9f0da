"""Rewards and returns of the chunks of one episode."""

import math
from collections.abc import Sequence

from ale.types import Chunk, Episode, Trajectory

NO_CHUNKS = "the episode has no chunks"


def reward_of(episode: Episode) -> float:
    """The reward of a graded episode, unitless.

    Raises:
        ValueError: the episode broke, or its reward is not finite; it belongs in no group.
    """
    if episode.reward is None or not math.isfinite(episode.reward):
        raise ValueError(f"episode {episode.id} has no finite reward: {episode.reward}")
    return episode.reward


def skipped(weights: Sequence[float], reason: str) -> str | None:
    """Why an episode gives no training signal; `reason` where all its weights are 0."""
    if not weights:
        return NO_CHUNKS
    return None if any(weights) else reason


def terminal_rewards(reward: float, n_chunks: int) -> tuple[float, ...]:
    """r_k of a terminal reward: `reward` at the last of K chunks, 0 at the others.

    Args:
        reward: R, unitless.
        n_chunks: K, at least 0.

    Returns:
        K values, first chunk first.

    Source: arXiv:2512.24873, 3.2.4.2.
    """
    return (*(0.0,) * (n_chunks - 1), reward) if n_chunks else ()


def sampled_tokens(trajectory: Trajectory) -> int:
    """Number of tokens that the model sampled, without forced completions; the provider's count if
    it gives no ids.
    """
    completions = [turn.completion for turn in trajectory.turns if not turn.completion.forced]
    return sum(
        each.usage.completion_tokens if each.tokens is None else len(each.tokens.output_ids)
        for each in completions
    )


def overlong_penalty(n_tokens: int, limit: int, buffer: int) -> float:
    """0 up to limit - buffer tokens, then linearly down to -1 at the limit, and -1 beyond.

    Source: soft overlong punishment, DAPO, arXiv:2503.14476, Eq. 13.
    """
    return max(-1.0, min(0.0, (limit - buffer - n_tokens) / buffer))


def returns_to_go(rewards: Sequence[float], gamma: float) -> tuple[float, ...]:
    """G_k = r_k + gamma * G_(k+1), with G_(K+1) = 0.

    Args:
        rewards: r_1 ... r_K, unitless; may be empty.
        gamma: discount per chunk, in (0, 1].

    Returns:
        K values, first chunk first, at most sum |r_k| in absolute value. A return is 0 if its
        reward is so many chunks away that the discount is below the range of floats.

    Raises:
        ValueError: gamma outside (0, 1].

    Source: the general form of arXiv:2512.24873, Eq. 7, with a reward per chunk; for
    `terminal_rewards` it gives G_k = gamma^(K-k) * R, which is Eq. 7 with j = K.
    """
    if not 0.0 < gamma <= 1.0:
        raise ValueError(f"gamma must be in (0, 1]: {gamma}")
    found: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        found.append(following)
    found.reverse()
    return tuple(found)


def position_weights(n_chunks: int, decay: float | None) -> tuple[float, ...]:
    """w_k = k / K, or, with a decay, w_k = decay^(K-k): grows strictly with k; w_K = 1.

    Args:
        n_chunks: K, at least 0.
        decay: None, or in (0, 1). The growth is strict as long as decay^K is a normal float (for
            0.9: some 6,700 chunks); weights of earlier chunks than that are 0.

    Returns:
        K values in [0, 1], unitless, first chunk first.

    Source: ALE-lite's "backward-weighted scheme (later chunks receive higher weight)"; it gives
    no formula, so both are this package's.
    """
    if decay is None:
        return tuple(k / n_chunks for k in range(1, n_chunks + 1))
    return tuple(decay ** (n_chunks - k) for k in range(1, n_chunks + 1))


def error_counts(trajectory: Trajectory, chunks: Sequence[Chunk]) -> tuple[int, ...]:
    """How many of each chunk's tool calls failed (`Observation.error` is set)."""
    turns = trajectory.turns
    return tuple(
        sum(
            observation.error is not None
            for span in chunk.spans
            for observation in turns[span.turn].observations[span.calls[0] : span.calls[1]]
        )
        for chunk in chunks
    )


def less_penalties(
    rewards: Sequence[float], errors: Sequence[int], penalty: float
) -> tuple[float, ...]:
    """r_k - penalty * errors_k: each chunk pays for its own failed calls.

    Args:
        rewards: K values, unitless.
        errors: K counts.
        penalty: reward per failed call, at least 0.
    """
    return tuple(reward - penalty * count for reward, count in zip(rewards, errors, strict=True))
