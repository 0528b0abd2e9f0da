"""For tests: credited episodes with exact tokens, and a stand-in for the model component."""

import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import define, field, frozen

from ale.types import (
    HAND_OVERS,
    Batch,
    BatchStatistics,
    Chunk,
    Completion,
    CompletionRequest,
    Credit,
    CreditedGroup,
    Episode,
    Group,
    LLMCapabilities,
    Message,
    PolicySnapshot,
    Rollout,
    Sampling,
    Span,
    TokenTrace,
    Trajectory,
    Turn,
)


@define(kw_only=True, slots=False)
class Model:
    """A `PolicyModel`."""

    model: Any
    tokenizer: Any = None
    fingerprint: str = "tiny"
    lock: Any = field(factory=threading.RLock)


class InProcessLLM:
    """A `TrainablePolicy` that is trained, and never asked."""

    capabilities = LLMCapabilities(token_ids=True, logprobs=True)
    hand_overs = HAND_OVERS

    def __init__(
        self, model: Any, tokenizer: Any = None, *, fingerprint: str = "tiny", **sampling: float
    ) -> None:
        self.policy_version = 0
        self.policy = Model(model=model, tokenizer=tokenizer, fingerprint=fingerprint)
        self.same_engine: bool | None = True
        self.training_device = "cpu"
        if hasattr(model, "parameters"):
            self.training_device = str(next(model.parameters()).device)
        self.sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, **sampling})  # type: ignore[arg-type]

    def attached(self) -> None:
        """Does nothing."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Nothing is sampled here."""
        raise AssertionError("nothing is sampled here")

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """As `complete`."""
        raise AssertionError("nothing is scored here")

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Take the version alone."""
        self.policy_version = snapshot.version

    async def aclose(self) -> None:
        """Does nothing."""


@frozen(kw_only=True)
class TokenTurn:
    """One turn, by its tokens."""

    prompt: Sequence[int]
    output: Sequence[int]
    logps: Sequence[float] | None = None
    """Log-probabilities under the sampler, nats; None: -1 each."""
    forced: bool = False
    fresh: bool = False
    """A new context begins here."""
    version: int = 0
    cuts: Sequence[int] | None = None
    """Where chunks begin inside the turn, 0 first; None: the turn is one chunk."""

    def as_turn(self, *, first: bool) -> Turn:
        """The record."""
        n = len(self.output)
        trace = TokenTrace(
            prompt_ids=tuple(self.prompt),
            output_ids=tuple(self.output),
            logprobs=(-1.0,) * n if self.logps is None else tuple(self.logps),
            policy_versions=(self.version,) * n,
        )
        message = Message(role="assistant", content="x" * n)
        completion = Completion(message=message, tokens=trace, forced=self.forced)
        return Turn(completion=completion, fresh_context=first or self.fresh)


@frozen(kw_only=True)
class TokenEpisode:
    """One episode: its turns, its reward, and its credit by chunk."""

    turns: Sequence[TokenTurn]
    reward: float = 1.0
    weights: Sequence[float] | None = None
    """One weight per chunk; None: the episode's reward for each."""
    rewards: Sequence[float] | None = None
    """One reward per chunk; None: the episode's reward at the last chunk."""
    skipped: str | None = None
    metadata: Mapping[str, Any] = field(factory=dict)

    def chunks(self) -> list[Chunk]:
        """The turns' own chunks."""
        found: list[Chunk] = []
        for number, turn in enumerate(self.turns):
            for cut in pairwise([*(turn.cuts or [0]), len(turn.output)]):
                span = Span(turn=number, text=cut, calls=(0, 0), tokens=cut)
                found.append(Chunk(index=len(found), kind="test", spans=(span,)))
        return found


def credited(
    *episodes: TokenEpisode, task: str = "t", chunks: Sequence[Sequence[Chunk]] | None = None
) -> CreditedGroup:
    """A group of these episodes.

    Args:
        chunks: the chunks of each episode; None: the turns' own.
    """
    rollouts, credits = [], []
    for number, each in enumerate(episodes):
        cut = each.chunks() if chunks is None else chunks[number]
        weights = tuple(each.weights or [each.reward] * len(cut))
        turns = tuple(turn.as_turn(first=i == 0) for i, turn in enumerate(each.turns))
        episode = Episode(
            id=f"0-{task}-{number}",
            task_id=task,
            rollout=number,
            reward=max(0.0, each.reward),
            trajectory=Trajectory(turns=turns),
            metadata=each.metadata,
        )
        rollouts.append(Rollout(episode=episode, chunks=tuple(cut)))
        terminal = (*[0.0] * (len(cut) - 1), each.reward) if cut else ()
        credits.append(
            Credit(
                episode_id=episode.id,
                scheme="test",
                rewards=terminal if each.rewards is None else tuple(each.rewards),
                returns=weights,
                weights=weights,
                skipped=each.skipped,
            )
        )
    statistics = BatchStatistics(n_episodes=len(episodes), mean_reward=0.0)
    group = Group(task_id=task, rollouts=tuple(rollouts), batch=statistics)
    return CreditedGroup(group=group, credits=tuple(credits))


def batch_of(*groups: CreditedGroup, step: int = 0) -> Batch:
    """A batch of these groups."""
    return Batch(step=step, groups=groups)
