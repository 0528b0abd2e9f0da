"""The policy that `ale` samples from and trains: model, tokenizer and chat template.

Modules: `policy` (`TorchPolicy`), `loading` (from a name, a folder or a seed), `tiny` (model and
tokenizer created from a seed), `weights`. Chat templates are `ale_training.chat`.
"""

from ale_llm_policy.options import TinyShape
from ale_llm_policy.pretrained.loading import load_policy, tiny_policy
from ale_llm_policy.pretrained.policy import TorchPolicy
from ale_llm_policy.pretrained.tiny import make_tiny, make_tokenizer

__all__ = [
    "TinyShape",
    "TorchPolicy",
    "load_policy",
    "make_tiny",
    "make_tokenizer",
    "tiny_policy",
]
