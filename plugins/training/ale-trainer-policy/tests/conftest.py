"""Tiny models of transformers' own classes, and random episodes."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ale.types import CreditedGroup
from ale_trainer_policy.metrics import MetricsAccumulator
from ale_training.testing import InProcessLLM, TokenEpisode, TokenTurn, batch_of, credited

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


def random_group(seed: int, *, rollouts: int = 4, task: str = "t") -> CreditedGroup:
    """Rollouts that share a prompt, restart from one another's turns, compact and differ.

    Some are led by an expert for their first turns.
    """
    rng = random.Random(seed)
    experts = random.Random(~seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(VOCAB) for _ in range(rng.randint(low, high))]

    start = ids(2, 12)
    known: list[list[TokenTurn]] = []
    episodes = []
    for _ in range(rollouts):
        turns = list(rng.choice(known)[: rng.randint(0, 2)]) if known else []
        led = experts.choice([0, 0, 1, 2])
        for _ in range(rng.randint(1, 3)):
            forced = len(turns) < led and all(each.forced for each in turns)
            compacted = bool(turns) and rng.random() < 0.2
            before = [*turns[-1].prompt, *turns[-1].output, *ids(0, 5)] if turns else start
            prompt = [*start, *ids(1, 4)] if compacted else before
            output = ids(1, 9)
            cuts = [0, rng.randint(1, len(output) - 1)] if len(output) > 2 else None
            logps = [-rng.random() * 5 for _ in output]
            turns.append(
                TokenTurn(
                    prompt=prompt,
                    output=output,
                    logps=None if forced else logps,
                    forced=forced,
                    fresh=compacted,
                    cuts=cuts,
                )
            )
        known.append(turns)
        n_chunks = sum(len(each.cuts or [0]) for each in turns)
        reward = rng.choice([1.0, 1.0, -1.0])
        weights = [reward * rng.uniform(0.2, 2.0) for _ in range(n_chunks)]
        episodes.append(TokenEpisode(turns=turns, reward=reward, weights=weights))
    return credited(*episodes, task=task)


@pytest.fixture
def lab() -> Any:
    """The makers above, for tests: modules of tests can't import each other."""
    return SimpleNamespace(
        evolve=evolve,
        TokenTurn=TokenTurn,
        TokenEpisode=TokenEpisode,
        credited=credited,
        batch_of=batch_of,
        random_group=random_group,
        tiny_model=tiny_model,
        InProcessLLM=InProcessLLM,
        accumulator=MetricsAccumulator,
        VOCAB=VOCAB,
    )


@pytest.fixture
def make_llm() -> Callable[..., Any]:
    def made(**changes: Any) -> Any:
        return InProcessLLM(tiny_model(**changes))

    return made
