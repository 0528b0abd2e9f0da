"""How much memory a run's model, sampler and trainer need, and what would make them fit.

Weights, moments and copies are counted from the options; what an update allocates is traced (see
`ale_trainer_policy.traced`). Only tensors are counted: an allocator keeps somewhat more, and a
process itself takes some hundred MiB.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import evolve, field, frozen

from ale.protocols import Objective
from ale_trainer_policy.options import LearnOptions, ObjectiveParts, PolicyOptions, chosen_objective
from ale_trainer_policy.traced import Traced, trace
from ale_training.lora import LoraOptions

GIB = float(2**30)
_FP32 = 4
_PACKED = ("Qwen3ForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLM")
"""Models whose weights ale-llm-policy's sampler copies into its own form: see option `decoder`."""


@frozen(kw_only=True)
class Sampler:
    """The options of the model that samples, as far as they affect memory."""

    dtype: torch.dtype
    context: int
    """Tokens of the longest episode."""
    rows: int
    """Answers sampled at once."""
    packed: bool
    """Does the sampler keep a packed copy of the weights, if the model has such a form?"""
    prefix_cache: int
    """Bytes."""
    on_host: bool = False
    """Is the model in the processor's memory?"""
    quantised: bool | None = False
    """Are the model's weights in 4 bits? None: it is not loaded, and its weights can't be."""
    elsewhere: bool = False
    """Do servers sample? The weights for them are in the processor's memory."""


@frozen(kw_only=True)
class Part:
    """Something that takes memory."""

    name: str
    bytes: float
    when: str = "always"
    """``always``, ``training``, or ``handing over``, which comes after training."""


@frozen(kw_only=True)
class MemoryPlan:
    """The parts of one process: rank 0, which also samples, if there are several. On a processor
    they include the parts of the other processes, which share its memory.
    """

    traced: Traced
    parts: tuple[Part, ...]
    on_host: float = 0.0
    """Bytes in the processor's memory, over all processes, when they compute on GPUs."""

    @property
    def peak(self) -> float:
        """Bytes at the fullest moment."""
        always, *others = (
            sum(part.bytes for part in self.parts if part.when == when)
            for when in ("always", "training", "handing over")
        )
        return always + max(others)


@frozen(kw_only=True)
class Change:
    """A change of one option that would need less memory."""

    overrides: tuple[str, ...]
    """As for ``--set``."""
    peak: float


@frozen
class Planner:
    """Plans runs of one model; what several runs have in common is traced once."""

    _config: Any
    """The model's transformers config."""
    _traced: dict[Any, Traced] = field(factory=dict, init=False)

    def plan(self, sampler: Sampler, options: LearnOptions) -> MemoryPlan:
        """The memory of a run whose trainer has these options."""
        traced = self._trace(sampler, options)
        ranks = list(_of_each_rank(sampler, options, traced))
        found = [
            *_of_first_rank(sampler, options, traced, _cache_bytes(self._config, sampler)),
            *ranks,
            *(_others(ranks, options.processes - 1) if sampler.on_host else ()),
        ]
        return MemoryPlan(
            traced=traced,
            parts=tuple(part for part in found if part.bytes),
            on_host=0.0 if sampler.on_host else _beside_gpus(sampler, options, traced),
        )

    def changes_that_fit(
        self, sampler: Sampler, options: LearnOptions, memory: float
    ) -> tuple[Sequence[Change], Change]:
        """Single changes that make a run fit, and all changes that need less memory, combined.

        Args:
            memory: available bytes.
        """
        both = options, sampler
        alone = [self._change((override,), changed) for override, changed in _effective(*both)]
        names: list[str] = []
        while effective := _effective(*both):
            override, both = effective[0]
            names.append(override)
        fitting = [change for change in alone if change.peak <= memory]
        return fitting, self._change(tuple(names), both)

    def _change(self, overrides: tuple[str, ...], changed: "_Both") -> Change:
        options, sampler = changed
        return Change(overrides=overrides, peak=self.plan(sampler, options).peak)

    def _trace(self, sampler: Sampler, options: LearnOptions) -> Traced:
        key = (sampler.dtype, sampler.context, options)
        if key not in self._traced:
            objective = _objective(options)
            entropy = objective is not None and objective.needs_entropy
            found = trace(self._config, sampler.dtype, options, entropy, sampler.context)
            self._traced[key] = found
        return self._traced[key]


def _cache_bytes(config: Any, sampler: Sampler) -> int:
    """Bytes of keys and values when all rows are as long as the context."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    # Rows and columns both grow by doubling.
    rows, columns = (1 << (n - 1).bit_length() for n in (sampler.rows, max(256, sampler.context)))
    per_token = 2 * heads * width * text.num_hidden_layers * sampler.dtype.itemsize
    return int(rows * columns * per_token)


def _of_first_rank(
    sampler: Sampler, options: LearnOptions, traced: Traced, cache: int
) -> Iterator[Part]:
    """What the process that samples needs."""
    weights = _weights(sampler, traced)
    copied = options.sync == "copy"
    if sampler.on_host or not (copied and sampler.elsewhere):
        yield Part(name="weights", bytes=weights if copied else weights + traced.adapters)
    if sampler.quantised:
        yield Part(name="a layer's weights, dequantised", bytes=traced.dequantised)
    if not sampler.elsewhere:
        packed = sampler.packed and not sampler.quantised and traced.model in _PACKED
        yield Part(name="sampler's packed copy", bytes=weights * packed)
        yield Part(name="sampler's keys and values", bytes=cache)
        yield Part(name="sampler's prefix cache", bytes=sampler.prefix_cache)
    if copied and (sampler.on_host or not options.is_sharded):
        yield Part(name="weights handed over", bytes=weights, when="handing over")
    yield Part(name="references of KL", bytes=weights * _references(options))


def _of_each_rank(sampler: Sampler, options: LearnOptions, traced: Traced) -> Iterator[Part]:
    """What every process that trains needs."""
    trained = traced.trained
    yield from (
        _sharded(sampler, options, traced)
        if options.is_sharded
        else _alone(sampler, options, traced)
    )
    yield from _of_policy(sampler, options, traced)
    yield Part(name="activations and logits", bytes=traced.activations, when="training")
    if sampler.on_host and options.epochs * options.minibatches > 1:
        undone = 3 * _FP32 * trained / shards(options)
        yield Part(name="copy to undo the step", bytes=undone, when="training")
    if options.saving == "background" and sampler.on_host:
        yield Part(name="checkpoint that is written", bytes=3 * _FP32 * trained / shards(options))


def _others(ranks: Sequence[Part], n: int) -> Iterator[Part]:
    """What `n` more processes need, each with these parts."""
    for name, when in (("other processes", "always"), ("other processes' update", "training")):
        bytes_ = n * sum(part.bytes for part in ranks if part.when == when)
        yield Part(name=name, bytes=bytes_, when=when)


def _beside_gpus(sampler: Sampler, options: LearnOptions, traced: Traced) -> float:
    """Bytes that all processes with a GPU hold on the host."""
    exact, weights = _FP32 * traced.trained, _weights(sampler, traced)
    copied = options.sync == "copy"
    whole = weights * (copied and sampler.elsewhere) + weights * (copied and options.is_sharded)
    copies = int(options.epochs * options.minibatches > 1) + int(options.saving == "background")
    # Weights and two moments, copied to undo the step or to write a checkpoint.
    found = whole + options.replicas * copies * 3 * exact
    if options.offload == "host":
        frozen = weights + traced.adapters - sampler.dtype.itemsize * traced.trained
        found += options.replicas * (frozen + 4 * exact)
    return found


def _weights(sampler: Sampler, traced: Traced) -> int:
    return traced.quantised if sampler.quantised else traced.weights


def shards(options: LearnOptions) -> int:
    """Number of parts into which the trained weights are cut."""
    return options.processes // options.replicas


def _alone(sampler: Sampler, options: LearnOptions, traced: Traced) -> Iterator[Part]:
    """What training needs in one process."""
    if options.sync == "copy":
        yield Part(name="copy that is trained", bytes=traced.weights + traced.adapters)
    if sampler.dtype != torch.float32:
        yield Part(name="fp32 copy of what is trained", bytes=_FP32 * traced.trained)
    yield Part(name="AdamW's moments", bytes=2 * _FP32 * traced.trained)
    yield Part(name="gradients", bytes=_FP32 * traced.trained, when="training")


def _sharded(sampler: Sampler, options: LearnOptions, traced: Traced) -> Iterator[Part]:
    """One rank's shards, unless they are on the host, and the layers that it gathers."""
    n = shards(options)
    frozen = traced.weights + traced.adapters - sampler.dtype.itemsize * traced.trained
    if options.offload == "none" or sampler.on_host:
        own = (frozen + _FP32 * traced.trained) / n
        yield Part(name="shards that are trained", bytes=own)
        yield Part(name="AdamW's moments", bytes=2 * _FP32 * traced.trained / n)
        yield Part(name="gradients", bytes=_FP32 * traced.trained / n, when="training")
    if options.gradients == "whole":
        yield Part(name="whole gradients", bytes=_FP32 * traced.trained, when="training")
    half = options.precision == "bf16" and sampler.dtype == torch.float32
    gathered = traced.gathered / 2 if half else traced.gathered
    yield Part(name="gathered layers", bytes=gathered, when="training")


def _references(options: LearnOptions) -> int:
    """Number of models to which a KL is computed."""
    objective = _objective(options)
    compared = objective is not None and objective.needs_reference
    other = objective is not None and compared and objective.reference_model is not None
    kl = objective.kl if isinstance(objective, ObjectiveParts) else None
    served = kl is not None and kl.to == "server"
    start = options.kl_to_start == "metric" or (compared and not other and not served)
    return int(start) + int(other)


def _objective(options: LearnOptions) -> Objective | None:
    return chosen_objective(options.objective) if isinstance(options, PolicyOptions) else None


def _of_policy(sampler: Sampler, options: LearnOptions, traced: Traced) -> Iterator[Part]:
    if not isinstance(options, PolicyOptions):
        return
    if options.old_policy == "rollout_version":
        size = sampler.dtype.itemsize * traced.trained * options.keep_versions
        yield Part(name="versions kept", bytes=size)
    if options.critic is not None and options.critic.type == "model":
        n = shards(options)
        moments = 2 * _FP32 * traced.trained / n
        weights = _weights(sampler, traced)
        yield Part(name="critic and its moments", bytes=weights / n + moments)
        passes = _FP32 * traced.trained / n + traced.activations
        yield Part(name="critic's gradients and activations", bytes=passes, when="training")


_Both = tuple[LearnOptions, Sampler]


def _effective(options: LearnOptions, sampler: Sampler) -> list[tuple[str, _Both]]:
    """Changes of one option each that have an effect here: the override, and its result."""
    tokens = min(sampler.context, options.max_tokens_per_microbatch)
    logits_mb = min(64.0, options.logits_mb or 64.0)
    rows = min(8, sampler.rows)
    four_bits = options.lora is not None and options.sync == "same" and sampler.quantised is False

    def training(**changed: Any) -> _Both:
        return evolve(options, **changed), sampler

    def sampling(**changed: Any) -> _Both:
        return options, evolve(sampler, **changed)

    changes = [
        ("trainer.activations=recompute", training(activations="recompute")),
        (f"trainer.max_tokens_per_microbatch={tokens}", training(max_tokens_per_microbatch=tokens)),
        (f"trainer.logits_mb={logits_mb:g}", training(logits_mb=logits_mb)),
        (f"llm.max_batch={rows}", sampling(rows=rows)),
        ("llm.prefix_cache_mb=0", sampling(prefix_cache=0)),
        ("llm.decoder=modules", sampling(packed=False)),
        ("llm.dtype=bfloat16", sampling(dtype=torch.bfloat16)),
        ("trainer.lora.r=16", training(lora=options.lora or LoraOptions())),
        ("llm.quantise=nf4", sampling(quantised=True) if four_bits else (options, sampler)),
    ]
    return [change for change in changes if change[1] != (options, sampler)]
