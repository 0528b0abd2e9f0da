"""The policy: a model that is sampled and trained in one process."""

import copy
import hashlib
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ale_llm_policy.pretrained import weights
from ale_training.chat import ChatTemplate
from ale_training.chat.tokenizer import vocabulary_id
from ale_training.pretrained import no_progress_bars
from ale_training.tokens import context_of


class TorchPolicy:
    """A causal language model of transformers with its tokenizer and template.

    The LLM component ``policy`` has one as its attribute `policy`, and a trainer in the same
    process takes it from there.

    Attributes:
        model: the module that runs a forward pass. A trainer that adds adapters may put the
            wrapped module here.
        base: the transformers model itself, without what a trainer has wrapped around it.
        tokenizer: fast tokenizer of transformers.
        template: renders conversations and reads answers.
        version: version of the weights that are sampled from; `Policy.load_policy` sets it.
        lock: held while the model runs or its weights change, so that no step sees half of an
            update.
        name: the model's name, for records.
    """

    def __init__(self, model: Any, tokenizer: Any, template: ChatTemplate, *, name: str) -> None:
        self.model = self.base = model
        self.tokenizer = tokenizer
        self.template = template
        self.version = 0
        self.name = name
        self.lock = threading.RLock()
        self.fingerprint = _fingerprint(model, tokenizer)
        """Fingerprint of architecture and tokenizer, not of weights: two policies with the same
        fingerprint can take each other's weights and ids."""

    @cached_property
    def tokenizer_id(self) -> str:
        """As `ale_training.chat.tokenizer.vocabulary_id`."""
        return vocabulary_id(self.tokenizer)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.base.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' dtype."""
        dtype: torch.dtype = next(self.base.parameters()).dtype
        return dtype

    @property
    def context(self) -> int:
        """Most tokens that the model was designed for, prompt and answer together."""
        return context_of(self.base.config)

    def load_weights(self, source: Any) -> None:
        """Take weights in place: a mapping of names to tensors, or a folder of safetensors.

        Raises:
            InputError: the weights do not belong to this model.
        """
        with self.lock:
            weights.load(self.base, source)

    def copied(self) -> "TorchPolicy":
        """Another model with the same weights; tokenizer and template are shared."""
        model = copy.deepcopy(self.base)
        return TorchPolicy(model, self.tokenizer, self.template, name=self.name)

    def save(self, directory: Path, named: Mapping[str, Tensor] | None = None) -> None:
        """Write model, tokenizer and template in the format of transformers.

        Args:
            named: weights by the names of the plain model; the model's own if None.
        """
        state = None if named is None else dict(named)
        with self.lock, no_progress_bars():
            self.base.save_pretrained(directory, safe_serialization=True, state_dict=state)
        self.tokenizer.save_pretrained(directory)


def _fingerprint(model: Any, tokenizer: Any) -> str:
    """SHA-256 over the model's class, its parameters' names and shapes, and the vocabulary."""
    digest = hashlib.sha256(type(model).__name__.encode())
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}".encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    return digest.hexdigest()
