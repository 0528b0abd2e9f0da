"""The policy that `ale` samples from and trains: model, tokenizer and chat template.

Modules: `policy` (`TorchPolicy`), `loading` (from a name, a folder or a seed), `tiny` (model and
tokenizer created from a seed), `template` (prompts rendered turn by turn, answers parsed), `calls`
and `formats` (tool calls in text), `token_bytes` (tokens as bytes), `weights`.
"""

from ale_llm_policy.options import TinyShape
from ale_llm_policy.pretrained.formats import FORMATS
from ale_llm_policy.pretrained.loading import load_policy, tiny_policy
from ale_llm_policy.pretrained.policy import TorchPolicy
from ale_llm_policy.pretrained.template import Answer, ChatTemplate
from ale_llm_policy.pretrained.tiny import make_tiny, make_tokenizer

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
