"""Tiny models of transformers' own classes, and a stand-in for the component that samples."""

import random
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from attrs import evolve, field, frozen
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ale.types import (
    Batch,
    BatchStatistics,
    Chunk,
    Completion,
    Credit,
    CreditedGroup,
    Episode,
    Group,
    LLMCapabilities,
    Message,
    Rollout,
    Sampling,
    Span,
    TokenTrace,
    Trajectory,
    Turn,
)

VOCAB = 64
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
}


def tiny_model(kind: str = "qwen3", seed: int = 0, **changes: Any) -> Any:
    """A model with random weights, large enough that its distributions are far from flat."""
    torch.manual_seed(seed)
    sizes = {**_SIZES, "initializer_range": 0.3, **changes}
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    return Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=True)).eval()


class Policy:
    """What a trainer takes out of a component that samples in this process."""

    def __init__(self, model: Any, fingerprint: str = "tiny") -> None:
        self.model = model
        self.version = 0
        self.fingerprint = fingerprint
        self.lock = threading.RLock()


class InProcessLLM:
    """The part of a component that a trainer looks at."""

    capabilities = LLMCapabilities(token_ids=True, logprobs=True)

    def __init__(self, model: Any, fingerprint: str = "tiny", **sampling: float) -> None:
        self.policy = Policy(model, fingerprint)
        self.sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, **sampling})


@frozen(kw_only=True)
class Said:
    """One turn, by its tokens."""

    prompt: Sequence[int]
    output: Sequence[int]
    logps: Sequence[float] | None = None
    forced: bool = False
    fresh: bool = False
    version: int = 0
    cuts: Sequence[int] | None = None
    """Where chunks begin inside the turn, 0 first; None: the turn is one chunk."""


@frozen(kw_only=True)
class Played:
    """One episode: its turns, its reward, and a weight per chunk."""

    said: Sequence[Said]
    reward: float = 1.0
    weights: Sequence[float] | None = None
    skipped: str | None = None
    metadata: dict[str, Any] = field(factory=dict)


def _turn(said: Said, first: bool) -> Turn:
    n = len(said.output)
    trace = TokenTrace(
        prompt_ids=tuple(said.prompt),
        output_ids=tuple(said.output),
        logprobs=tuple(said.logps) if said.logps is not None else (-1.0,) * n,
        policy_versions=(said.version,) * n,
    )
    completion = Completion(
        message=Message(role="assistant", content="x" * n), tokens=trace, forced=said.forced
    )
    return Turn(completion=completion, fresh_context=first or said.fresh)


def _chunks(played: Played) -> list[Chunk]:
    found: list[Chunk] = []
    for number, said in enumerate(played.said):
        cuts = [*(said.cuts or [0]), len(said.output)]
        for start, stop in pairwise(cuts):
            span = Span(turn=number, text=(start, stop), calls=(0, 0), tokens=(start, stop))
            found.append(Chunk(index=len(found), kind="test", spans=(span,)))
    return found


def credited(*episodes: Played, task: str = "t", chunks: Any = None) -> CreditedGroup:
    """A group of these episodes."""
    rollouts, credits = [], []
    for number, played in enumerate(episodes):
        cut = _chunks(played) if chunks is None else chunks[number]
        weights = tuple(played.weights or [played.reward] * len(cut))
        episode = Episode(
            id=f"0-{task}-{number}",
            task_id=task,
            rollout=number,
            reward=max(0.0, played.reward),
            trajectory=Trajectory(
                turns=tuple(_turn(said, i == 0) for i, said in enumerate(played.said))
            ),
            metadata=played.metadata,
        )
        rollouts.append(Rollout(episode=episode, chunks=tuple(cut)))
        credits.append(
            Credit(
                episode_id=episode.id,
                scheme="test",
                rewards=(*[0.0] * (len(cut) - 1), played.reward) if cut else (),
                returns=weights,
                weights=weights,
                skipped=played.skipped,
            )
        )
    statistics = BatchStatistics(n_episodes=len(episodes), mean_reward=0.0)
    group = Group(task_id=task, rollouts=tuple(rollouts), batch=statistics)
    return CreditedGroup(group=group, credits=tuple(credits))


def batch_of(*groups: CreditedGroup, step: int = 0) -> Batch:
    """A batch of these groups."""
    return Batch(step=step, groups=groups)


def random_group(seed: int, *, rollouts: int = 4, task: str = "t") -> CreditedGroup:
    """Rollouts that share a prompt, restart from one another's turns, compact and differ.

    Some are led by an expert for their first turns.
    """
    rng = random.Random(seed)
    experts = random.Random(~seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(VOCAB) for _ in range(rng.randint(low, high))]

    start = ids(2, 12)
    known: list[list[Said]] = []
    episodes = []
    for _ in range(rollouts):
        said = list(rng.choice(known)[: rng.randint(0, 2)]) if known else []
        led = experts.choice([0, 0, 1, 2])
        for _ in range(rng.randint(1, 3)):
            forced = len(said) < led and all(each.forced for each in said)
            compacted = bool(said) and rng.random() < 0.2
            before = [*said[-1].prompt, *said[-1].output, *ids(0, 5)] if said else start
            prompt = [*start, *ids(1, 4)] if compacted else before
            output = ids(1, 9)
            cuts = [0, rng.randint(1, len(output) - 1)] if len(output) > 2 else None
            logps = [-rng.random() * 5 for _ in output]
            said.append(
                Said(
                    prompt=prompt,
                    output=output,
                    logps=None if forced else logps,
                    forced=forced,
                    fresh=compacted,
                    cuts=cuts,
                )
            )
        known.append(said)
        n_chunks = sum(len(each.cuts or [0]) for each in said)
        reward = rng.choice([1.0, 1.0, -1.0])
        weights = [reward * rng.uniform(0.2, 2.0) for _ in range(n_chunks)]
        episodes.append(Played(said=said, reward=reward, weights=weights))
    return credited(*episodes, task=task)


@pytest.fixture
def lab() -> Any:
    """The makers above, for tests: modules of tests can't import each other."""
    from types import SimpleNamespace

    return SimpleNamespace(
        evolve=evolve,
        Said=Said,
        Played=Played,
        credited=credited,
        batch_of=batch_of,
        random_group=random_group,
        tiny_model=tiny_model,
        InProcessLLM=InProcessLLM,
        VOCAB=VOCAB,
    )


@pytest.fixture
def make_llm() -> Callable[..., Any]:
    def made(**changes: Any) -> Any:
        return InProcessLLM(tiny_model(**changes))

    return made
