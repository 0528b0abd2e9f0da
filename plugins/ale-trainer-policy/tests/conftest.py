"""Tiny models of transformers' own classes, and a stand-in for the component that samples."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ale.types import LLMCapabilities

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

    def __init__(self, model: Any, fingerprint: str = "tiny") -> None:
        self.policy = Policy(model, fingerprint)


@pytest.fixture
def make_llm() -> Callable[..., Any]:
    def made(**changes: Any) -> Any:
        return InProcessLLM(tiny_model(**changes))

    return made
