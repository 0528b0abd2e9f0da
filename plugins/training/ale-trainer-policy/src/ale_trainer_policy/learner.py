"""The model and its optimiser: gradients are accumulated, then applied."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import evolve, frozen
from torch import Tensor
from torch.distributed.tensor import DTensor

from ale.protocols import Objective, Terms, Tokens
from ale_trainer_policy.adamw import Trained
from ale_trainer_policy.critic import Critic, ValueTerms, value_loss
from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.scorer import Scorer
from ale_trainer_policy.scoring import Scored, packed_attention, value_states
from ale_trainer_policy.stored import Stored, check_shards, stored
from ale_trainer_policy.tree import Datum
from ale_training.lora import full_weights

CRITIC = "critic/"
"""Prefix of the critic's tensors in a checkpoint."""


@frozen(kw_only=True, eq=False)
class Measured:
    """Measurements of a forward and backward pass over one datum."""

    terms: Terms
    """The loss in these terms includes the critic's."""
    value: ValueTerms | None
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
        options: those of any trainer of this package.
        critic: values the samples' units; trained beside the model.
    """

    scale = 1.0
    """Factor on the loss in the backward pass."""
    collective = False
    """Other processes take part in the backward pass, so it must not be skipped."""

    def __init__(
        self,
        model: Any,
        options: LearnOptions,
        critic: Critic | None = None,
        *,
        fused: bool = True,
    ) -> None:
        super().__init__(model, options)
        self.updates = 0
        """Updates that have been applied."""
        self._before: tuple[dict[str, Tensor], int] | None = None
        self.critic = critic
        self.policy_trained = Trained(model.named_parameters(), options, fused=fused)
        self.critic_trained = (
            None if critic is None else Trained(critic.named_parameters(), options, fused=fused)
        )

    @property
    def trained(self) -> dict[str, Trained]:
        """What is trained, by the prefix of its tensors in a checkpoint."""
        policy = {"": self.policy_trained}
        return policy if self.critic_trained is None else {**policy, CRITIC: self.critic_trained}

    @property
    def parameters(self) -> list[Tensor]:
        """The policy's trained parameters."""
        return self.policy_trained.parameters

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.parameters[0].device

    def forward_backward(self, datum: Datum, objective: Objective) -> Measured:
        """Accumulate the gradient of one datum until the next `optim_step`.

        A datum with a non-finite loss adds nothing.
        """
        if datum.n_targets == 0:
            raise ValueError("a datum without target tokens has no gradient")
        with self.training():
            scored = self.scored(datum, entropy_gradient=objective.needs_entropy)
            with self._precision():
                value = self._value_loss(datum, scored)
            old = self._optional(datum.old_logp, scored.logp)
            terms = objective.evaluate(
                self._tokens(datum, scored.logp),
                scored.logp,
                scored.logp.detach() if old is None else old,
                scored.entropy if objective.needs_entropy else None,
            )
            loss = terms.loss if value is None else terms.loss + value.loss
            measured = Measured(
                terms=evolve(terms, loss=loss.detach()),
                value=None if value is None else evolve(value, loss=value.loss.detach()),
                logp=scored.logp.detach(),
                entropy=scored.entropy.detach(),
                computed=scored.computed,
            )
            if measured.finite or self.collective:
                (self.scale * loss).backward()  # type: ignore[no-untyped-call]
                for each in self.trained.values():
                    each.collect()
        return measured

    @contextmanager
    def training(self) -> Iterator[None]:
        """The context for a forward pass and its backward pass: recomputed layers must use the same
        attention.
        """
        own = None if self.critic is None else self.critic.model
        with (
            self._mode(training=True),
            packed_attention(self.model, self.options.packing),
            packed_attention(own, self.options.packing),
        ):
            yield

    def scored(self, datum: Datum, *, entropy_gradient: bool) -> Scored:
        """A forward pass over one datum, with its gradient; inside `training`."""
        with self._precision():
            return self._score(datum, entropy_gradient=entropy_gradient, states=self._values_states)

    def forward_backward_each(
        self, pieces: Sequence[Sequence[Sample]], objective: Objective
    ) -> Iterator[tuple[Datum, Measured]]:
        """Accumulate the gradients of these micro-batches; yields each with its measurements."""
        for piece in pieces:
            datum = self.packed(piece)
            yield datum, self.forward_backward(datum, objective)

    def optim_step(
        self, lr: float | None = None, policy: bool = True, critic: bool = True
    ) -> Sequence[float] | None:
        """Clip and apply the accumulated gradients, then reset them.

        Args:
            lr: the policy's, as for `rate`.
            policy: change the policy; False if nothing in the update concerns it.
            critic: the same for the critic, if there is one.

        A gradient of 0 changes nothing: not even moments, or weights by weight decay.

        Returns:
            The norms before clipping, of policy and critic; empty if there was nothing to change;
            None if one is not finite; then nothing was applied.
        """
        norms = [each.grad_norm() for each in self.trained.values()]
        if not all(map(math.isfinite, norms)):
            self.zero_grad()
            return None
        policy = policy and norms[0] > 0
        learns = critic and self.critic is not None and norms[-1] > 0
        shared = self.critic is not None and self.critic.options.gradient == "policy"
        if not (policy or learns):
            self.zero_grad()
            return []
        if policy or (learns and shared):
            self.policy_trained.step(norms[0], self.options.max_grad_norm, self.rate(lr))
        if learns and self.critic is not None and self.critic_trained is not None:
            rate = self.rate(self.critic.options.rate(self.options.lr))
            self.critic_trained.step(norms[1], self.options.max_grad_norm, rate)
        self.zero_grad()
        self.updates += 1
        return norms

    def rate(self, lr: float | None = None) -> float:
        """The learning rate of the next update: warm-up, a plateau, and a linear decay.

        Args:
            lr: the plateau's rate; None takes the one in the options.

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
        for each in self.trained.values():
            each.zero_grad()

    def reset_moments(self) -> None:
        """Drop the policy's moments, for example when its objective changes."""
        self.policy_trained.optimizer.state.clear()

    def weights(self) -> dict[str, Tensor]:
        """A copy of the policy's trained parameters, by name."""
        trained = self.policy_trained
        named = zip(trained.names, trained.parameters, strict=True)
        return {name: parameter.detach().clone() for name, parameter in named}

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint by name: trained parameters and optimiser moments."""
        return {
            f"{prefix}{name}": tensor
            for prefix, each in self.trained.items()
            for name, tensor in each.state().items()
        }

    def load(self, directory: Path, updates: int, shards: Mapping[str, str]) -> None:
        """Restore parameters and moments from a checkpoint; raises `StoreError`, or as `take`.

        Args:
            shards: SHA-256 of each file of its shards by name, as far as they are known.
        """
        check_shards(directory, shards)
        self.take(stored(directory), updates)

    def take(self, found: Stored, updates: int) -> None:
        """Restore what `state` returned.

        Raises:
            KeyError, ValueError: a tensor is missing, or has another shape. Nothing is changed.
        """
        for prefix, each in self.trained.items():
            each.check(found.shapes, prefix)
        self._make_room(found.shapes)
        found.read(self.state())
        self._restored(updates)

    def remember(self) -> None:
        """Copy this process's parameters and moments to host memory, for `undo`."""
        local = {name: local_part(each) for name, each in self.state().items()}
        self._before = {n: each.to("cpu", copy=True) for n, each in local.items()}, self.updates

    def forget(self) -> None:
        """Free what `remember` has copied."""
        self._before = None

    def undo(self) -> None:
        """Restore what `remember` has copied."""
        assert self._before is not None
        tensors, updates = self._before
        self._make_room(tensors)
        for name, each in self.state().items():
            local_part(each).copy_(tensors[name])
        self._restored(updates)

    def _make_room(self, names: Iterable[str]) -> None:
        critic = {name for name in names if name.startswith(CRITIC)}
        self.policy_trained.make_room(set(names) - critic)
        if self.critic_trained is not None:
            self.critic_trained.make_room(name.removeprefix(CRITIC) for name in critic)

    def _restored(self, updates: int) -> None:
        for each in self.trained.values():
            each.publish()
        self.updates = updates

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

    @property
    def _values_states(self) -> bool:
        """Does the critic value the policy's own hidden states?"""
        return self.critic is not None and self.critic.model is None

    def _values(self, datum: Datum, states: Tensor | None) -> Tensor:
        """V of the T + E states of a datum."""
        assert self.critic is not None
        if self.critic.model is None:
            found: Tensor = self.critic(states)
            return found
        return value_states(self.critic, datum, packing=self.options.packing)

    def _value_loss(self, datum: Datum, scored: Scored) -> ValueTerms | None:
        if self.critic is None:
            return None
        options = self.critic.options
        values = self._values(datum, scored.states)[: datum.n_targets]
        terms = value_loss(
            values,
            old=self._tensor(datum.old_value).to(values.dtype),
            target=self._tensor(datum.value_target).to(values.dtype),
            weight=self._tensor(datum.value_weight).to(values.dtype),
            clip=options.value_clip,
        )
        return evolve(terms, loss=options.coefficient * terms.loss)

    def values(self, pieces: Sequence[Sequence[Sample]]) -> list[Floats]:
        """V of the states of each micro-batch, without a gradient; see `value`."""
        return [self.value(piece) for piece in pieces]

    def value(self, samples: Sequence[Sample]) -> Floats:
        """V of the states before each token of these samples, and then of those after the last
        tokens of episodes that were cut off: (T + E,).
        """
        datum = self.packed(samples)
        with self._mode(training=False), torch.no_grad(), self._precision():
            states = None
            if self._values_states:
                states = self._score(datum, states=True).states
            found: Floats = self._values(datum, states).double().cpu().numpy()
        return found


def local_part(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor; an unsharded tensor is returned whole."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
