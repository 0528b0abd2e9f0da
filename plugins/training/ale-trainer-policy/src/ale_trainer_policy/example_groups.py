"""Weights that a credit scheme can give, from made-up groups of episodes."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import frozen

from ale.protocols import CreditScheme, CriticCredit
from ale.types import (
    BatchStatistics,
    Chunk,
    Completion,
    Credit,
    Episode,
    Group,
    Message,
    Observation,
    Rollout,
    Span,
    Stop,
    StopReason,
    ToolCall,
    Trajectory,
    Turn,
    Usage,
)

_CHUNKS = 3
_MOST_ROLLOUTS = 4
_LONG = 10**9
"""Tokens of an episode that is too long for any limit."""


@frozen(kw_only=True)
class Weighted:
    """The weights of an episode's chunks."""

    weights: tuple[float, ...]
    positive: bool
    """The sum of its rewards, as its credit has them, is above 0."""


@frozen(kw_only=True)
class Examples:
    """The weights of made-up episodes."""

    weighted: tuple[Weighted, ...]
    described: str = ""
    """The way in which successes alone weigh, as an ending of a sentence; empty if some weight is
    negative, or if failures weigh too."""


_ANY = Examples(
    weighted=tuple(
        Weighted(weights=(sign * 0.5, sign * 1.0, sign * 2.0), positive=sign > 0)
        for sign in (1.0, -1.0) * 16
    )
)
"""For a scheme whose weights a critic replaces, or that can't credit made-up episodes."""


def weighted_examples(credit: CreditScheme, rollouts: int) -> Examples:
    """The weights that the scheme gives to groups of successes, failures and partial scores.

    Args:
        credit: the scheme.
        rollouts: the number of a group.
    """
    if isinstance(credit, CriticCredit):
        return _ANY
    pairs: list[tuple[Rollout, Credit]] = []
    try:
        for group in _groups(max(1, min(rollouts, _MOST_ROLLOUTS))):
            pairs += zip(group.rollouts, credit.assign(group), strict=True)
    except Exception:  # a scheme may need what made-up episodes lack: then nothing is known
        return _ANY
    weighted = tuple(
        Weighted(weights=given.weights, positive=math.fsum(given.rewards) > 0) for _, given in pairs
    )
    return Examples(weighted=weighted, described=_described(pairs))


def teaches_nothing(credit: CreditScheme, rollouts: int) -> bool:
    """Has every chunk of every made-up episode the weight 0?"""
    examples = weighted_examples(credit, rollouts)
    return not any(weight for each in examples.weighted for weight in each.weights)


def _described(pairs: Sequence[tuple[Rollout, Credit]]) -> str:
    failures = [c.weights for r, c in pairs if r.episode.reward == 0.0]
    successes = [
        c.weights
        for r, c in pairs
        if r.episode.reward == 1.0 and r.episode.trajectory.stop.reason == "finished"
    ]
    if any(map(any, failures)) or any(w < 0 for _, c in pairs for w in c.weights):
        return ""
    if all(len(set(weights)) == 1 for weights in successes):
        return " on successes alone, every chunk alike: filtered imitation"
    later = all(one < other for weights in successes for one, other in pairwise(weights))
    return " on successes alone, discounted" if later else " on successes alone"


def _groups(n: int) -> Iterator[Group]:
    for succeeded in range(n + 1):
        rewards = (1.0,) * succeeded + (0.0,) * (n - succeeded)
        yield _group(rewards)
        yield _group(rewards, stop="max_turns")
        yield _group(rewards, error="exit code 1")
        yield _group(rewards, tokens=_LONG)
    yield _group((0.5,) * n)
    yield _group((0.25, 1.0, 0.5, 0.0)[:n])


def _group(
    rewards: Sequence[float],
    stop: StopReason = "finished",
    error: str | None = None,
    tokens: int = 10,
) -> Group:
    rollouts = tuple(_rollout(i, r, stop, error, tokens) for i, r in enumerate(rewards))
    mean = math.fsum(rewards) / len(rewards)
    statistics = BatchStatistics(n_episodes=len(rewards), mean_reward=mean)
    return Group(task_id="example", rollouts=rollouts, batch=statistics)


def _rollout(
    number: int, reward: float, stop: StopReason, error: str | None, tokens: int
) -> Rollout:
    turns = tuple(_turn(k, error if k == 0 else None, tokens) for k in range(_CHUNKS))
    episode = Episode(
        id=f"0-example-{number}",
        task_id="example",
        rollout=number,
        reward=reward,
        trajectory=Trajectory(turns=turns, stop=Stop(reason=stop)),
    )
    chunks = tuple(
        Chunk(index=k, kind="interaction", spans=(Span(turn=k, text=(0, 1), calls=(0, 1)),))
        for k in range(_CHUNKS)
    )
    return Rollout(episode=episode, chunks=chunks)


def _turn(number: int, error: str | None, tokens: int) -> Turn:
    call = ToolCall(id=f"call_{number}_0", name="shell", arguments='{"command": "ls"}')
    message = Message(role="assistant", content="a", tool_calls=(call,))
    usage = Usage(prompt_tokens=0, completion_tokens=tokens)
    observed = Observation(call_id=call.id, tool="shell", content="ok", error=error)
    completion = Completion(message=message, finish_reason="tool_calls", usage=usage)
    return Turn(completion=completion, observations=(observed,))
