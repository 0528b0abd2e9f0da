"""A small policy, requests to it, and a forward pass with which its numbers must agree."""

from collections.abc import Callable
from typing import Any

import torch

from ale.types import CompletionRequest, Conversation, Message, Sampling, ToolSpec
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.pretrained import TinyShape, TorchPolicy, tiny_policy

SHAPE = TinyShape(
    layers=2, width=32, heads=4, kv_heads=2, head_dim=8, mlp=48, vocabulary=330, context=1024
)
CORPUS = ["List the files and count the words of the longest line.\n"]
SHELL = ToolSpec(name="shell", description="Run.", parameters={"type": "object", "properties": {}})

Make = Callable[..., PolicyLLM]
"""Makes a model from options; a fixture of this package's tests."""


def new_policy(seed: int = 3, shape: TinyShape = SHAPE) -> TorchPolicy:
    """A policy with weights larger than a tiny policy's: distributions are far from uniform."""
    policy = tiny_policy(CORPUS, shape, seed=seed)
    with torch.no_grad():
        policy.model.lm_head.weight *= 12
    return policy


def request(
    text: str, *, seed: int = 0, episode: str | None = None, n: int = 24, **fields: Any
) -> CompletionRequest:
    """A request for the first turn of an episode of its own."""
    name = episode or f"{text}/{seed}"
    who = Conversation(episode_id=name, task_id="demo", rollout=0, seed=seed)
    sampling = fields.pop("sampling", Sampling(max_tokens=n))
    messages = (Message(role="user", content=text),)
    return CompletionRequest(
        **{"messages": messages, "turn": 0, "sampling": sampling, "conversation": who, **fields}
    )


def forward_logits(
    policy: TorchPolicy, prompt: tuple[int, ...], output: tuple[int, ...]
) -> torch.Tensor:
    """Logits from which each token of `output` was drawn, ``[n, vocabulary]``, in one pass."""
    ids = torch.tensor([prompt + output], device=policy.device)
    with torch.no_grad():
        logits: torch.Tensor = policy.model(ids, use_cache=False).logits[0].float()
    return logits[len(prompt) - 1 : -1]
