"""Rewards for a critic: generalised advantage estimation over tokens, turns or chunks."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal

import msgspec

from ale.errors import InputError
from ale.types import Chunk, Credit, Gae, Group, Rollout, Span
from ale_credit.options import GaeOptions
from ale_credit.returns import NO_CHUNKS, returns_to_go, reward_of, terminal_rewards

_NOT_STORED = "no critic has valued the chunks of this episode"


class GaeScheme:
    """Rewards from which a critic computes A_k = sum_l (gamma lam)^l delta_(k+l), with

        delta_k = r_k + gamma V(s_(k+1)) - V(s_k)

    over the units of an episode. V belongs to the trainer, which therefore computes the advantages
    from `rewards` and `gae` of each credit. The weights given here are those for V = 0 everywhere:
    sum_l (gamma lam)^l r_(k+l). With lam = 1 and ``unit: chunk`` this is IPA's return.

    With the option `critic`, the weights are the advantages from the values that a trainer's critic
    has stored; episodes without values are skipped.

    Source: Schulman et al., arXiv:1506.02438, Eq. 16, with PPO's critic (arXiv:1707.06347).
    """

    needs_critic: Literal[True] = True

    def __init__(self, options: GaeOptions) -> None:
        self._options = options
        self._values = None if options.critic is None else _stored(options.critic)

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, each from its own reward alone."""
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        episode, options, chunks = rollout.episode, self._options, rollout.chunks
        truncated = episode.trajectory.stop.reason in options.bootstrap
        reward = 0.0 if truncated else reward_of(episode)
        spans = _units(chunks, options.unit)
        if self._values is not None:
            return self._completed(rollout, reward, self._values.get(episode.id))
        return Credit(
            episode_id=episode.id,
            scheme="gae",
            rewards=terminal_rewards(reward, len(chunks)),
            returns=_discounted(reward, spans, options.gamma),
            weights=_discounted(reward, spans, options.gamma * options.lam),
            skipped=None if chunks else NO_CHUNKS,
            gae=Gae(gamma=options.gamma, lam=options.lam, unit=options.unit, truncated=truncated),
        )

    def _completed(self, rollout: Rollout, reward: float, values: Sequence[float] | None) -> Credit:
        """The credit with stored values; an episode that was cut off had a last value that was not
        stored, and is skipped.
        """
        options, n = self._options, len(rollout.chunks)
        known = values is not None and len(values) == n > 0
        if rollout.episode.trajectory.stop.reason in options.bootstrap:
            known = False
        rewards = terminal_rewards(reward, n)
        weights = (0.0,) * n
        if known and values is not None:
            after = (*values[1:], 0.0)
            deltas = [
                r + options.gamma * v - u for r, v, u in zip(rewards, after, values, strict=True)
            ]
            weights = (
                returns_to_go(deltas, options.gamma * options.lam) if options.lam else (*deltas,)
            )
        return Credit(
            episode_id=rollout.episode.id,
            scheme="gae",
            rewards=rewards,
            returns=returns_to_go(rewards, options.gamma),
            weights=weights,
            skipped=None if known else _NOT_STORED if n else NO_CHUNKS,
        )


def _stored(folder: Path) -> Mapping[str, Sequence[float]]:
    """The values of a folder by episode.

    Raises:
        InputError: there are none, or a file is damaged.
    """
    found: dict[str, Sequence[float]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                stored = msgspec.json.decode(line, type=_Line)
            except msgspec.MsgspecError as error:
                why = f"no line of a critic's values: {error}"
                raise InputError.of(why, file=str(file), line=number) from error
            found[stored.episode_id] = stored.values
    if not found:
        message = f"{folder} has no values of a critic"
        hint = "a trainer with the option critic writes them into values of its run"
        raise InputError.of(message, path="credit.critic", hint=hint)
    return found


class _Line(msgspec.Struct):
    episode_id: str
    values: list[float]


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
