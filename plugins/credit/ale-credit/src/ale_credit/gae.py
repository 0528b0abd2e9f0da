"""Rewards for a critic: generalised advantage estimation over tokens, turns or chunks."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from ale.types import Chunk, Credit, Gae, Group, Rollout, Span
from ale_credit.options import GaeOptions
from ale_credit.returns import NO_CHUNKS, reward_of, terminal_rewards


class GaeScheme:
    """Rewards from which a critic computes A_k = sum_l (gamma lam)^l delta_(k+l), with

        delta_k = r_k + gamma V(s_(k+1)) - V(s_k)

    over the units of an episode. V belongs to the trainer, which therefore computes the advantages
    from `rewards` and `gae` of each credit. The weights given here are those for V = 0 everywhere:
    sum_l (gamma lam)^l r_(k+l). With lam = 1 and ``unit: chunk`` this is IPA's return.

    Source: Schulman et al., arXiv:1506.02438, Eq. 16, with PPO's critic (arXiv:1707.06347).
    """

    needs_critic: Literal[True] = True

    def __init__(self, options: GaeOptions) -> None:
        self._options = options

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, each from its own reward alone."""
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        episode, options, chunks = rollout.episode, self._options, rollout.chunks
        truncated = episode.trajectory.stop.reason in options.bootstrap
        reward = 0.0 if truncated else reward_of(episode)
        spans = _units(chunks, options.unit)
        return Credit(
            episode_id=episode.id,
            scheme="gae",
            rewards=terminal_rewards(reward, len(chunks)),
            returns=_discounted(reward, spans, options.gamma),
            weights=_discounted(reward, spans, options.gamma * options.lam),
            skipped=None if chunks else NO_CHUNKS,
            gae=Gae(gamma=options.gamma, lam=options.lam, unit=options.unit, truncated=truncated),
        )


def _discounted(
    reward: float, units: Sequence[tuple[int, int]], factor: float
) -> tuple[float, ...]:
    """The terminal reward, discounted from the last unit back to each chunk's first unit."""
    return tuple(reward * factor ** (units[-1][1] - first) for first, _ in units)


def _units(chunks: Sequence[Chunk], unit: str) -> Sequence[tuple[int, int]]:
    """Numbers of the first and last unit of each chunk."""
    if unit == "chunk":
        return [(number, number) for number in range(len(chunks))]
    return _by_turns(chunks) if unit == "turn" else _by_tokens(chunks)


def _by_turns(chunks: Sequence[Chunk]) -> Sequence[tuple[int, int]]:
    # Turns without credit are in no chunk, and are no units.
    turns_in_order = sorted({span.turn for chunk in chunks for span in chunk.spans})
    number_of = {turn: number for number, turn in enumerate(turns_in_order)}
    turns = [[number_of[span.turn] for span in chunk.spans] or [0] for chunk in chunks]
    return [(each[0], each[-1]) for each in turns]


def _by_tokens(chunks: Sequence[Chunk]) -> Sequence[tuple[int, int]]:
    """A chunk without tokens weighs as the token after it; at the end, as the last one."""
    sizes = [sum(map(_tokens, chunk.spans)) for chunk in chunks]
    last = max(0, sum(sizes) - 1)
    firsts = accumulate(sizes, initial=0)
    return [
        (min(first, last), min(first + max(0, size - 1), last))
        for first, size in zip(firsts, sizes, strict=False)
    ]


def _tokens(span: Span) -> int:
    """Tokens of a span; 1 if none were recorded, which no trainer with a critic accepts."""
    return 1 if span.tokens is None else span.tokens[1] - span.tokens[0]
