"""Memory of one update, found by running the update over tensors without data.

Every operation of the forward and backward pass is executed with the shapes that it would have, and
what each allocates and frees is counted: for any architecture, packing and option, in seconds, and
without the memory itself.
"""

import weakref
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ale_trainer_policy.learner import Learner
from ale_trainer_policy.models import add_adapters, recompute_activations
from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.samples import Sample

_BLOCK, _BLOCKS_OF_SCALES = 64, 256
"""NF4: a byte per scale of 64 numbers, and 4 per 256 of these scales (arXiv:2305.14314)."""
_MICROBATCHES = 2
"""The second micro-batch runs with the gradients of the first in memory."""


@frozen(kw_only=True)
class Traced:
    """Memory in bytes of a model and of one update of it."""

    model: str
    """The model's class."""
    parameters: int
    """Number of parameters, not bytes."""
    trained: int
    """Number of trained parameters."""
    weights: int
    quantised: int
    """Bytes of the weights if the linear layers, except the output layer, are in 4 bits."""
    dequantised: int
    """Bytes of the largest of these layers in the model's own dtype."""
    adapters: int
    """Bytes of the adapters' weights, which are not included in `weights`."""
    gathered: int
    """Bytes that a rank holds whole at once: two layers' weights and all weights outside layers."""
    activations: int
    """The most bytes allocated at once besides weights and accumulated gradients."""


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that exist."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                self._add(each.untyped_storage())
        return found

    def _add(self, storage: Any) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, size)

    def _drop(self, size: int) -> None:
        self.now -= size


def trace(
    config: Any,
    dtype: torch.dtype,
    options: LearnOptions,
    entropy: bool,
    context: int,
) -> Traced:
    """Run one update of a model with this config over tensors without data.

    Args:
        config: the model's transformers config.
        dtype: the weights' dtype.
        options: the trainer's.
        entropy: does the objective have a term of the entropy, whose gradient needs memory?
        context: tokens of the longest trajectory. As many of this length as fit are in a
            micro-batch, and they share no prefix.
    """
    from transformers import AutoModelForCausalLM

    n = max(1, options.max_tokens_per_microbatch // context)
    samples = [sample_of(context, int(config.get_text_config().vocab_size)) for _ in range(n)]
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=dtype
        )
        n_plain = sum(each.nbytes for each in model.parameters())
        matrices = _in_4_bits(model)
        if options.lora is not None:
            add_adapters(model, options.lora)
            # On other devices PEFT makes adapters in the dtype of their layer, but not on this one.
            model.to(dtype)
    with FakeTensorMode(allow_non_fake_inputs=True), _Live() as live:
        model.to_empty(device="cpu")
        model.tie_weights()
        recompute_activations(model, options)
        weights = sum(each.nbytes for each in model.parameters())
        learner = Learner(model, options)
        before = live.now
        for _ in range(_MICROBATCHES):
            _forward_backward(learner, samples, entropy=entropy)
        gradients = live.now - before
    return Traced(
        model=type(model).__name__,
        parameters=sum(each.numel() for each in model.parameters()),
        trained=sum(each.numel() for each in learner.parameters),
        weights=n_plain,
        quantised=n_plain - sum(each.nbytes - _nf4_bytes(each.numel()) for each in matrices),
        dequantised=max((each.nbytes for each in matrices), default=0),
        adapters=weights - n_plain,
        gathered=_gathered(model),
        activations=live.peak - before - gradients,
    )


def _in_4_bits(model: Any) -> list[torch.Tensor]:
    """The weights that ``llm.quantise: nf4`` quantises."""
    output = model.get_output_embeddings()
    return [
        module.weight
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module is not output
    ]


def _nf4_bytes(n: int) -> int:
    scales = -(-n // _BLOCK)
    return n // 2 + scales + 4 * -(-scales // _BLOCKS_OF_SCALES)


def _gathered(model: Any) -> int:
    blocks = set(getattr(model, "_no_split_modules", None) or ())
    sizes = [
        sum(each.nbytes for each in module.parameters())
        for module in model.modules()
        if type(module).__name__ in blocks
    ]
    rest = sum(each.nbytes for each in model.parameters()) - sum(sizes)
    # While one layer computes, the next is gathered.
    return int(rest + sum(sorted(sizes)[-2:]))


def _forward_backward(learner: Learner, samples: list[Sample], *, entropy: bool) -> None:
    """As `Learner` does it, but without the objective, which takes only a few numbers per token
    and looks at values, which these tensors do not have.
    """
    with learner.training():
        scored = learner.scored(learner.packed(samples), entropy_gradient=entropy)
        loss = -scored.logp.sum() - entropy * scored.entropy.sum()
        loss.backward()  # type: ignore[no-untyped-call]
    learner.policy_trained.collect()


def sample_of(length: int, vocabulary: int) -> Sample:
    """A trajectory of which every token but the first is trained on."""
    n = length - 1
    zeros, ones = np.zeros(n, np.int64), np.ones(n)
    # Random, so that two of them share no prefix of any length that matters.
    ids = np.random.default_rng().integers(0, vocabulary, length)
    return Sample(
        episode="",
        rows=(ids,),
        row=zeros,
        at=np.arange(1, length),
        turn=zeros,
        place=np.arange(n),
        chunk=zeros,
        weight=ones,
        imitation=0.0 * ones,
        sampled=ones.astype(bool),
        behaviour_logp=-ones,
        version=zeros,
        positive=True,
    )
