"""One rank's part of a learner: FSDP2 shards weights, gradients and moments over the ranks.

Every rank calls the same methods with the same arguments, in the same order. Micro-batches are
distributed in rounds, one per rank; a rank without one computes a copy with zero weights, so that
all ranks take part in the collectives.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from attrs import evolve
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ale.errors import StoreError
from ale.protocols import Objective
from ale_trainer_policy.critic import Critic
from ale_trainer_policy.learner import Learner, Measured
from ale_trainer_policy.models import recompute_activations
from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.placement import Placement, device_of
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.stored import Stored, check_shards, nothing, start_writing, stored
from ale_training.lora import each_full_weight

T = TypeVar("T")
Pieces = Sequence[Sequence[Sample]]


class ShardedLearner(Learner):
    """One rank's part of the learner; its methods are collective.

    Args:
        model: a sharded model.
        options: as for `Learner`.
        critic: also sharded.
        mesh: over all ranks.
        handed: dtype of the weights that are handed over; None: their own.
    """

    def __init__(
        self,
        model: Any,
        options: LearnOptions,
        critic: Critic | None,
        mesh: DeviceMesh,
        handed: torch.dtype | None,
    ) -> None:
        self._rank, self._n = dist.get_rank(), mesh.size()
        self._handed = handed
        super().__init__(model, options, critic, fused=False)
        # FSDP averages over the ranks, but a loss here is a plain sum.
        self.scale = float(self._n)
        self.collective = True
        # A separate group, as shards may be written while the other groups are in use.
        self._group = dist.new_group(backend="gloo")
        self._written: Callable[[], dict[str, str]] = nothing

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return device_of(self.model)

    def _precision(self) -> AbstractContextManager[Any]:
        # The gathered weights already have this precision.
        return nullcontext()

    def round(self, pieces: Pieces, objective: Objective, last: bool) -> list[Measured]:
        """Forward and backward over at most one micro-batch per rank; rank 0 gets the measurements.

        Args:
            last: this is the update's last round. Only then are gradients shared with all ranks;
                until then each rank may hold its own.
        """
        for module in (self.model, *([] if self.critic is None else [self.critic])):
            module.set_is_last_backward(last)
            if self.options.gradients == "whole":
                module.set_requires_gradient_sync(last)
            elif self.options.replicas > 1:
                module.set_requires_all_reduce(last)
        datum = self.packed(self._mine(pieces))
        found: list[Measured] = self._gathered(self.forward_backward(datum, objective), len(pieces))
        return found

    def round_of(self, method: str, pieces: Pieces) -> list[Floats]:
        """Like `round`, but returns what a method (`logp`, `value`) computes without a gradient."""
        computed = getattr(self, method)(self._mine(pieces))
        found: list[Floats] = self._gathered(computed, len(pieces))
        return found

    def _mine(self, pieces: Pieces) -> Sequence[Sample]:
        if self._rank < len(pieces):
            return pieces[self._rank]
        return [
            evolve(
                each,
                weight=0.0 * each.weight,
                imitation=0.0 * each.imitation,
                regularised=0.0,
                value=None,
            )
            for each in pieces[0]
        ]

    def _gathered(self, found: Any, n: int) -> Any:
        everyone: list[Any] | None = [None] * self._n if self._rank == 0 else None
        dist.gather_object(found, everyone, dst=0)
        return [] if everyone is None else everyone[:n]

    def full_weights(self) -> dict[str, Tensor]:
        """As for `Learner`, on rank 0, in host memory; the other ranks return no weights."""
        named = each_full_weight(self.model, dtype=self._handed)
        return {name: tensor.cpu() for name, tensor in named if self._rank == 0}

    def start_saving(self, folder: Path, *, background: bool) -> None:
        """Write this rank's shards after earlier ones are written. Raises as `finish_saving`."""
        self.finish_saving()
        self._written = start_writing(folder, self.state(), self._group, background=background)

    def finish_saving(self) -> dict[str, str]:
        """Wait until all ranks have finished writing.

        Returns:
            On rank 0, the SHA-256 of each file that was being written, by name.

        Raises:
            StoreError: one of them could not write.
        """
        written, self._written = self._written, nothing
        return written()

    def load(self, directory: Path, updates: int, shards: Mapping[str, str]) -> None:
        """As for `Learner`; each rank checks some of the shards and reads its own parts.

        Raises:
            StoreError: a rank can't read its parts, or a shard is damaged; raised on all ranks.
        """
        self._agreed(lambda: check_shards(directory, shards, self._rank, self._n))
        found = self._agreed(lambda: stored(directory, self._group))
        self._agreed(lambda: self._taken(found, updates, directory))

    def _taken(self, found: Stored, updates: int, directory: Path) -> None:
        try:
            self.take(found, updates)
        except (KeyError, ValueError) as error:
            raise StoreError(f"{directory} is incomplete: {error}") from error

    def _agreed(self, call: Callable[[], T]) -> T:
        """The result of a call if it succeeds on all ranks; no rank waits for a failed one."""
        found: list[T] = []
        reason = None
        try:
            found.append(call())
        except StoreError as error:
            reason = str(error)
        reasons: list[str | None] = [None] * self._n
        dist.all_gather_object(reasons, reason, group=self._group)
        failed = [f"rank {rank}: {each}" for rank, each in enumerate(reasons) if each is not None]
        if failed:
            same = all(each == reasons[0] for each in reasons)
            raise StoreError(str(reasons[0]) if same else failed[0])
        return found[0]


def sharded_learner(
    model: Any,
    options: LearnOptions,
    critic: Critic | None,
    placement: Placement,
    sources: tuple[Any, Critic | None],
) -> ShardedLearner:
    """This rank's learner; its process must have joined the group. Collective.

    Args:
        model: a model on no device; it is sharded in place, as is the critic.
        sources: model and critic with their weights, on rank 0; None elsewhere.
    """
    mesh = placement.mesh(dist.get_world_size())
    recompute_activations(model, options)
    placement.shard(model, model, mesh)
    placement.fill(model, sources[0])
    if critic is not None:
        if critic.model is not None:
            recompute_activations(critic.model, options)
        placement.shard(critic, critic.model, mesh, exact=True)
        placement.fill(critic, sources[1])
    return ShardedLearner(model, options, critic, mesh, placement.handed)
