"""Schemes that compare the rollouts of a task where they passed the same state.

They need no critic and no other rollouts: what several episodes of a group have in common says what
a state was worth. Where no two episodes share a state, they know nothing of chunks.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from ale.types import Chunk, Credit, Group, Rollout, Turn
from ale_credit.advantages import group_normalised, mean_centred
from ale_credit.options import GigpoOptions
from ale_credit.returns import NO_CHUNKS, returns_to_go, reward_of, skipped, terminal_rewards

_EPS = 1e-6
State = bytes
"""A digest of what a state is known by."""


def histories(rollout: Rollout) -> list[State]:
    """The state before each chunk and after the last: all answers and observations up to there."""
    known = hashlib.blake2b(digest_size=16)
    found = []
    for turns in _between(rollout):
        for turn in turns:
            calls = [(call.name, call.arguments) for call in turn.completion.message.tool_calls]
            answer = (turn.completion.message.content, calls)
            known.update(repr((answer, _observed(turn))).encode())
        found.append(known.digest())
    return found


def observations(rollout: Rollout) -> list[State]:
    """The state before each chunk and after the last: what the last turn before it observed.

    Two states are one where the environment answered alike, whatever was done before.
    """
    found = []
    last: object = None
    for turns in _between(rollout):
        last = _observed(turns[-1]) if turns else last
        found.append(hashlib.blake2b(repr(last).encode(), digest_size=16).digest())
    return found


def _between(rollout: Rollout) -> Iterator[Sequence[Turn]]:
    """The turns before the first chunk, then those from each chunk to the next."""
    turns = rollout.episode.trajectory.turns
    edges = [0, *(_first(chunk, len(turns)) for chunk in rollout.chunks), len(turns)]
    return (turns[a:b] for a, b in pairwise(edges))


def _first(chunk: Chunk, n_turns: int) -> int:
    return chunk.spans[0].turn if chunk.spans else n_turns


def _observed(turn: Turn) -> list[tuple[str, int | None]]:
    return [(each.content, each.exit_code) for each in turn.observations]


class Gigpo:
    """The weight of chunk k is A^E + w A^S_k: the episode's advantage in its group, plus the
    chunk's among all chunks of the group that were taken in the same state.

    A^E = (R - mean) / std over the group's rewards; A^S_k = (G_k - mean) / std over the discounted
    returns G of the chunks taken in that state, 0 where it was passed once.

    Source: GiGPO, arXiv:2505.10978, Eq. 3 to 8. There a state is what the environment shows
    (``state: observation``). In a shell most observations are empty, and say little about the
    state, so that the default is the whole history.
    """

    compares_rollouts: Literal[True] = True

    def __init__(self, options: GigpoOptions) -> None:
        self._options = options
        self._states = histories if options.state == "history" else observations

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, relative to the group."""
        rollouts = group.rollouts
        rewards = [reward_of(rollout.episode) for rollout in rollouts]
        returns = [
            returns_to_go(terminal_rewards(reward, len(rollout.chunks)), self._options.gamma)
            for reward, rollout in zip(rewards, rollouts, strict=True)
        ]
        taken: dict[State, list[tuple[int, int]]] = defaultdict(list)
        for i, rollout in enumerate(rollouts):
            for k, state in enumerate(self._states(rollout)[:-1]):
                taken[state].append((i, k))
        of_chunk = [[0.0] * len(each.chunks) for each in rollouts]
        for places in taken.values():
            advantages = self._relative([returns[i][k] for i, k in places])
            for (i, k), advantage in zip(places, advantages, strict=True):
                of_chunk[i][k] = self._options.step_weight * advantage
        of_episode = self._relative(rewards)
        return [
            _credit("gigpo", rollout, reward, [whole + own for own in chunks])
            for rollout, reward, whole, chunks in zip(
                rollouts, rewards, of_episode, of_chunk, strict=True
            )
        ]

    def _relative(self, values: Sequence[float]) -> Sequence[float]:
        """Minus the mean, divided by the standard deviation; 0 where all are equal."""
        if len(values) < 2 or math.isclose(min(values), max(values), abs_tol=1e-12):
            return [0.0] * len(values)
        return group_normalised(values, "sample", _EPS)


class Tree:
    """The weight of chunk k is V(s_(k+1)) - V(s_k), with V the mean reward of the group's episodes
    that passed the state; the episodes of a group are a tree of equal beginnings.

    The last state's value is the episode's own reward, so that the weights of an episode sum to
    R minus the group's mean. Where an episode has left all others, V is its own reward: what it did
    later has the weight 0.

    Source: values of inner nodes as means over their leaves, as in tree search without a critic
    (TreeRL, arXiv:2506.11902); here of whatever the rollouts share, without planned branches.
    """

    compares_rollouts: Literal[True] = True

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, relative to the group."""
        rewards = [reward_of(rollout.episode) for rollout in group.rollouts]
        # The group's mean, subtracted first, gives exact zeros where all rewards are equal.
        centred = mean_centred(rewards) if rewards else []
        states = [histories(rollout) for rollout in group.rollouts]
        earned: dict[State, list[float]] = defaultdict(list)
        for along, value in zip(states, centred, strict=True):
            for state in dict.fromkeys(along[:-1]):
                earned[state].append(value)
        value_of = {state: math.fsum(found) / len(found) for state, found in earned.items()}
        found = []
        for rollout, reward, along, value in zip(
            group.rollouts, rewards, states, centred, strict=True
        ):
            values = [*(value_of[state] for state in along[:-1]), value]
            found.append(_credit("tree", rollout, reward, [b - a for a, b in pairwise(values)]))
        return found


def _credit(scheme: str, rollout: Rollout, reward: float, weights: Sequence[float]) -> Credit:
    n = len(rollout.chunks)
    return Credit(
        episode_id=rollout.episode.id,
        scheme=scheme,
        rewards=terminal_rewards(reward, n),
        returns=(reward,) * n,
        weights=tuple(weights),
        skipped=skipped(weights, "its weights are all 0") if n else NO_CHUNKS,
    )
