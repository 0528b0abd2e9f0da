"""The model and its optimiser: gradients are accumulated, then applied."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from attrs import evolve, frozen
from torch import Tensor

from ale_trainer_policy.attention import tree_attention_enabled
from ale_trainer_policy.objective import Terms, Tokens, evaluate
from ale_trainer_policy.options import LearnOptions, ObjectiveParts
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.scorer import Scorer
from ale_trainer_policy.scoring import score
from ale_trainer_policy.tree import Datum
from ale_training.lora import full_weights, whole


@frozen(kw_only=True, eq=False)
class Measured:
    """Measurements of a forward and backward pass over one datum."""

    terms: Terms
    logp: Tensor
    entropy: Tensor
    computed: int
    """Tokens that went through the model."""

    @property
    def finite(self) -> bool:
        """Is the loss finite?"""
        return math.isfinite(float(self.terms.loss.detach()))


class Learner(Scorer):
    """Sums gradients over datums and applies them with AdamW.

    Args:
        model: a transformers causal model; its parameters that require a gradient are trained,
            and changed in place.
        options: of any trainer of this package.
    """

    scale = 1.0
    """Factor on the loss in the backward pass."""
    collective = False
    """Other processes take part in the backward pass, so it must not be skipped."""

    def __init__(self, model: Any, options: LearnOptions, *, fused: bool = True) -> None:
        super().__init__(model, options)
        self.updates = 0
        """Updates that have been applied."""
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters: list[Tensor] = [parameter for _, parameter in named]
        # Small updates are lost in half precision, so the optimiser works on an fp32 copy then.
        self.masters = [_master(parameter) for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(
            self.masters,
            lr=options.lr,
            betas=options.betas,
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=fused,
        )
        self.zero_grad()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.parameters[0].device

    def forward_backward(self, datum: Datum, parts: ObjectiveParts) -> Measured:
        """Accumulate the gradient of one datum until the next `optim_step`.

        A datum with a non-finite loss adds nothing.
        """
        if datum.n_targets == 0:
            raise ValueError("a datum without target tokens has no gradient")
        # Includes the backward pass: recomputed layers must use the same attention.
        with self._mode(training=True), self._attention():
            with self._precision():
                scored = score(
                    self.model,
                    datum,
                    packing=self.options.packing,
                    temperature=self.temperature,
                    logits_mb=self.options.logits_mb,
                    entropy_gradient=parts.entropy != 0,
                )
            terms = evaluate(
                parts,
                scored.logp,
                self._optional(datum.old_logp, scored.logp),
                self._tokens(datum, scored.logp),
                scored.entropy,
            )
            measured = Measured(
                terms=evolve(terms, loss=terms.loss.detach()),
                logp=scored.logp.detach(),
                entropy=scored.entropy.detach(),
                computed=scored.computed,
            )
            if measured.finite or self.collective:
                (self.scale * terms.loss).backward()  # type: ignore[no-untyped-call]
                self._collect()
        return measured

    def forward_backward_each(
        self, pieces: Sequence[Sequence[Sample]], parts: ObjectiveParts
    ) -> Iterator[tuple[Datum, Measured]]:
        """Accumulate the gradients of these micro-batches; yields each with its measurements."""
        for piece in pieces:
            datum = self.packed(piece)
            yield datum, self.forward_backward(datum, parts)

    def optim_step(self, lr: float | None = None) -> float | None:
        """Clip and apply the accumulated gradient, then reset it.

        Args:
            lr: as of `rate`.

        Returns:
            The norm before clipping; None if it is not finite, and nothing was applied.
        """
        grads = []
        for master in self.masters:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            grads.append(master.grad)
        bound = self.options.max_grad_norm
        norm = float(whole(torch.nn.utils.get_total_norm(grads)))
        if not math.isfinite(norm):
            self.zero_grad()
            return None
        if bound is not None and norm > bound:
            for grad in grads:
                grad.mul_(bound / norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(lr)
        self.optimizer.step()
        self._publish()
        self.zero_grad()
        self.updates += 1
        return norm

    def rate(self, lr: float | None = None) -> float:
        """The learning rate of the next update: warm-up, a plateau, and a linear decay.

        Args:
            lr: of the plateau; that of the options if None.

        Source: the WSD schedule of MiniCPM (arXiv:2404.06395), with a linear end.
        """
        options = self.options
        plateau = options.lr if lr is None else lr
        warmup = options.warmup_updates
        grown = min(1.0, (self.updates + 1) / warmup if warmup else 1.0)
        if options.decay_updates is None:
            return plateau * grown
        past = self.updates + 1 - warmup - options.stable_updates
        gone = min(1.0, max(0.0, past / options.decay_updates))
        return plateau * grown * (1.0 - gone * (1.0 - options.decay_to))

    def zero_grad(self) -> None:
        """Reset the accumulated gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            parameter.grad = None

    def weights(self) -> dict[str, Tensor]:
        """A copy of the trained parameters, by name."""
        named = zip(self.names, self.parameters, strict=True)
        return {name: parameter.detach().clone() for name, parameter in named}

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint by name: trained parameters and optimiser moments."""
        found: dict[str, Tensor] = {}
        for name, master in zip(self.names, self.masters, strict=True):
            found[f"weight/{name}"] = master.detach().contiguous()
            for key, value in self.optimizer.state.get(master, {}).items():
                found[f"optimizer/{key}/{name}"] = value.contiguous()
        return found

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Restore what `state` returned.

        Raises:
            KeyError, ValueError: a tensor is missing, or has another shape. Nothing is changed.
        """
        self.check(tensors)
        weights = [tensors[f"weight/{name}"] for name in self.names]
        fused = bool(self.optimizer.defaults["fused"])
        self.zero_grad()
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, master, weight in zip(self.names, self.masters, weights, strict=True):
                master.copy_(weight)
                moments = _moments(tensors, name, master, fused=fused)
                if moments:
                    self.optimizer.state[master] = moments
        self._publish()
        self.updates = updates

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise as `load_state` unless the tensors fit."""
        for name, master in zip(self.names, self.masters, strict=True):
            weight = tensors[f"weight/{name}"]
            if master.shape != weight.shape:
                raise ValueError(f"{name} is {tuple(weight.shape)}, not {tuple(master.shape)}")

    def full_weights(self) -> dict[str, Tensor]:
        """All weights under the names of the plain model, adapters merged into them."""
        return full_weights(self.model)

    def _optional(self, value: Floats | None, like: Tensor) -> Tensor | None:
        return None if value is None else self._tensor(value).to(like.dtype)

    def _tokens(self, datum: Datum, logp: Tensor) -> Tokens:
        dtype = torch.promote_types(self.parameters[0].dtype, torch.float32)
        return Tokens(
            weight=self._tensor(datum.weight).to(dtype),
            imitation=self._tensor(datum.imitation).to(dtype),
            behaviour_logp=self._tensor(datum.behaviour_logp).to(dtype),
            sampled=self._tensor(datum.sampled),
            positive=self._tensor(datum.positive),
            chunk_id=self._tensor(datum.chunk_id),
            trajectory_id=self._tensor(datum.trajectory_id),
            regularised=self._tensor(datum.regularised).to(dtype),
            reference_logp=self._optional(datum.reference_logp, logp),
        )

    def _tensor(self, array: "np.ndarray[Any, Any]") -> Tensor:
        return torch.as_tensor(array, device=self.device)

    def _attention(self) -> AbstractContextManager[Any]:
        return (
            nullcontext()
            if self.options.packing == "padded"
            else tree_attention_enabled(self.model)
        )

    def _collect(self) -> None:
        """Move gradients to the optimiser's fp32 copies, if it has any."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter and parameter.grad is not None:
                grad = parameter.grad.to(master.dtype)
                master.grad = grad if master.grad is None else master.grad + grad
                parameter.grad = None

    def _publish(self) -> None:
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)


def _master(parameter: Tensor) -> Tensor:
    if parameter.dtype in (torch.bfloat16, torch.float16):
        return parameter.detach().float().clone().requires_grad_()
    return parameter


def _moments(
    tensors: Mapping[str, Tensor], name: str, master: Tensor, *, fused: bool
) -> dict[str, Tensor]:
    # A fused AdamW counts its updates on the parameter's device, any other one on the host.
    keys = [key for key in tensors if key.startswith("optimizer/") and key.endswith(f"/{name}")]
    return {
        key.split("/", 2)[1]: tensors[key].clone().to(master.device)
        if fused or tensors[key].dim()
        else tensors[key].clone()
        for key in keys
    }
