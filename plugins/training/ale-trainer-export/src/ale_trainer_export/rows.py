"""Rows of the data set, made from credited groups. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale.errors import AleError
from ale.types import Chunk, Credit, CreditedGroup, Message, Range, Rollout, TokenTrace

SCHEMA = 1


@frozen(kw_only=True, slots=False)
class ChunkPart:
    """The part of a chunk within a turn, with the chunk's credit."""

    index: int
    kind: str
    text: Range
    """Characters of the message's content."""
    calls: Range
    """Tool calls of the message."""
    tokens: Range | None
    """Positions in `Tokens.ids`; null where not recorded."""
    chunk_reward: float
    """r_k."""
    chunk_return: float
    """G_k."""
    weight: float
    """Factor on grad log pi of each token of this part."""


@frozen(kw_only=True, slots=False)
class Tokens:
    """The message's tokens, exactly as they were sampled."""

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    """Natural log-probabilities from the sampler itself."""
    policy_versions: Sequence[int]
    weights: Sequence[float] | None
    """One per token; null if a chunk begins inside a token, which then has no single weight."""


@frozen(kw_only=True, slots=False)
class Row:
    """One turn: a conversation, the answer to it, and the weight of each part of the answer."""

    schema: int = SCHEMA
    run: str
    step: int
    episode: str
    task: str
    rollout: int
    turn: int
    """0-based number of the turn."""
    reward: float
    """Reward of the whole episode."""
    scheme: str
    """Name of the credit scheme that gave the weights."""
    skipped: str | None
    """Why the scheme skipped this episode, else null."""
    model: str
    finish_reason: str
    messages: Sequence[Message]
    """The conversation as the model saw it before the turn."""
    message: Message
    """The answer."""
    chunks: Sequence[ChunkPart]
    tokens: Tokens | None

    @property
    def max_abs_weight(self) -> float:
        """The largest |weight| of its chunks."""
        return max(abs(part.weight) for part in self.chunks)


def rows_of(group: CreditedGroup, *, run: str, step: int) -> Iterator[Row]:
    """The rows of a group, rollout by rollout, turn by turn.

    A turn in which no chunk has a part gives no row.

    Raises:
        AleError: as `CreditedGroup.pairs`.
    """
    for rollout, credit in group.pairs():
        yield from _rows(rollout, credit, run=run, step=step)


def _rows(rollout: Rollout, credit: Credit, *, run: str, step: int) -> Iterator[Row]:
    episode = rollout.episode
    assert episode.reward is not None
    for number, parts in sorted(_by_turn(rollout.chunks, credit).items()):
        turn = episode.trajectory.turns[number]
        trace = turn.completion.tokens
        yield Row(
            run=run,
            step=step,
            episode=episode.id,
            task=episode.task_id,
            rollout=episode.rollout,
            turn=number,
            reward=episode.reward,
            scheme=credit.scheme,
            skipped=credit.skipped,
            model=turn.completion.model,
            finish_reason=turn.completion.finish_reason,
            messages=episode.trajectory.messages(upto=number),
            message=turn.completion.message,
            chunks=parts,
            tokens=None if trace is None else _tokens(trace, parts, episode.id),
        )


def _by_turn(chunks: Sequence[Chunk], credit: Credit) -> dict[int, list[ChunkPart]]:
    parts: dict[int, list[ChunkPart]] = defaultdict(list)
    for chunk, reward, return_, weight in zip(
        chunks, credit.rewards, credit.returns, credit.weights, strict=True
    ):
        for span in chunk.spans:
            parts[span.turn].append(
                ChunkPart(
                    index=chunk.index,
                    kind=chunk.kind,
                    text=span.text,
                    calls=span.calls,
                    tokens=span.tokens,
                    chunk_reward=reward,
                    chunk_return=return_,
                    weight=weight,
                )
            )
    return parts


def _tokens(trace: TokenTrace, parts: Sequence[ChunkPart], episode: str) -> Tokens:
    if not all(math.isfinite(value) for value in trace.logprobs):
        raise AleError(f"a log-probability in episode {episode} is not finite")
    return Tokens(
        prompt_ids=trace.prompt_ids,
        ids=trace.output_ids,
        logprobs=trace.logprobs,
        policy_versions=trace.policy_versions,
        weights=token_weights(parts, len(trace.output_ids)),
    )


def token_weights(parts: Sequence[ChunkPart], n_tokens: int) -> Sequence[float] | None:
    """The weight of each token: that of its chunk.

    Returns:
        `n_tokens` weights; None if the parts do not assign every token to a chunk. Nothing is
        guessed; the ranges of text are still there.
    """
    weights: list[float] = []
    for part in sorted(parts, key=lambda part: part.tokens or (-1, -1)):
        if part.tokens is None or part.tokens[0] != len(weights):
            return None
        weights += [part.weight] * (part.tokens[1] - part.tokens[0])
    return weights if len(weights) == n_tokens else None
