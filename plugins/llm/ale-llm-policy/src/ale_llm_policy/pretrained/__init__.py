"""The policy that ale samples from and trains.

A library, not a plugin. Its rooms: `policy` (the holder), `loading` (from a name, a folder or a
seed), `tiny` (the model and tokenizer made from a seed), `template` (chat rendered step by step,
answers read), `calls` (tool calls in text), `pieces` (tokens as bytes), `weights`.
"""

from ale_llm_policy.pretrained.calls import FORMATS
from ale_llm_policy.pretrained.loading import load_policy, tiny_policy
from ale_llm_policy.pretrained.policy import TorchPolicy
from ale_llm_policy.pretrained.template import Answer, ChatTemplate
from ale_llm_policy.pretrained.tiny import TinyShape, make_tiny, make_tokenizer

__all__ = [
    "FORMATS",
    "Answer",
    "ChatTemplate",
    "TinyShape",
    "TorchPolicy",
    "load_policy",
    "make_tiny",
    "make_tokenizer",
    "tiny_policy",
]
