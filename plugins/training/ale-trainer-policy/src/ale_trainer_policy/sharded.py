"""One rank's part of a learner: FSDP2 shards weights, gradients and moments over the ranks.

Every rank calls the same methods with the same arguments, in the same order. Micro-batches are
distributed in rounds, one per rank; a rank without one computes a copy with zero weights, so that
all ranks take part in the collectives.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from attrs import evolve
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ale_trainer_policy.critic import Critic
from ale_trainer_policy.learner import Learner, Measured
from ale_trainer_policy.options import LearnOptions, ObjectiveParts
from ale_trainer_policy.samples import Floats, Sample
from ale_training.lora import whole

Pieces = Sequence[Sequence[Sample]]


class ShardedLearner(Learner):
    """One rank's part of the learner; its methods are collective.

    Args:
        model: whole; it is sharded in place, layer by layer.
        options: as for `Learner`.
        critic: sharded too.
        mesh: of one dimension, over all ranks.
    """

    def __init__(
        self, model: Any, options: LearnOptions, critic: Critic | None, mesh: DeviceMesh
    ) -> None:
        self._rank, self._n = mesh.get_rank(), mesh.size()
        _shard(model, model, mesh)
        if critic is not None:
            _shard(critic, critic.model, mesh)
        super().__init__(model, options, critic, fused=False)
        # FSDP averages over the ranks, and a loss here is a plain sum.
        self.scale = float(self._n)
        self.collective = True

    def round(self, pieces: Pieces, parts: ObjectiveParts) -> list[Measured]:
        """Forward and backward over at most one micro-batch per rank; measurements, on rank 0."""
        datum = self.packed(self._mine(pieces))
        found: list[Measured] = self._gathered(self.forward_backward(datum, parts), len(pieces))
        return found

    def round_logp(self, pieces: Pieces) -> list[Floats]:
        """As `round`, of log pi."""
        found: list[Floats] = self._gathered(self.logp(self._mine(pieces)), len(pieces))
        return found

    def round_values(self, pieces: Pieces) -> list[Floats]:
        """As `round`, of the critic's values."""
        found: list[Floats] = self._gathered(self.value(self._mine(pieces)), len(pieces))
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

    def state(self) -> dict[str, Tensor]:
        """As of `Learner`, every tensor whole, on every rank."""
        return {name: whole(tensor) for name, tensor in super().state().items()}

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """As of `Learner`, from whole tensors."""
        placed = dict(tensors)
        for prefix, trained in self.trained.items():
            like = {
                name: master
                for name, master in zip(trained.names, trained.masters, strict=True)
                if isinstance(master, DTensor)
            }
            placed |= {
                key: _sharded(key.removeprefix(prefix), tensor, like)
                for key, tensor in tensors.items()
                if key.startswith(prefix)
            }
        super().load_state(placed, updates)


def _shard(module: Any, layers: Any, mesh: DeviceMesh) -> None:
    """Shard a module in place, layer by layer.

    Args:
        layers: the transformers model that has them; None: no layers.
    """
    blocks = set(getattr(layers, "_no_split_modules", None) or ())
    for inner in module.modules():
        if type(inner).__name__ in blocks:
            fully_shard(inner, mesh=mesh)
    fully_shard(module, mesh=mesh)


def _sharded(key: str, tensor: Tensor, like: Mapping[str, DTensor]) -> Tensor:
    """A checkpoint's tensor, sharded as its parameter is on this rank."""
    kind, _, name = key.partition("/")
    master = like.get(name if kind == "weight" else name.partition("/")[2])
    if master is None or kind == "random" or tensor.dim() == 0 or tensor.shape != master.shape:
        return tensor
    return distribute_tensor(tensor, master.device_mesh, master.placements)


def sharded_learner(
    model: Any, options: LearnOptions, critic: Critic | None, local_rank: int
) -> ShardedLearner:
    """This rank's learner; its process must have joined the group.

    Args:
        model: whole, on any device; it is sharded in place, as is the critic.
        local_rank: among the ranks of this machine; the number of its GPU.
    """
    device = next(model.parameters()).device.type
    if device == "cuda":
        model = model.to(f"cuda:{local_rank}")
        critic = critic if critic is None else critic.to(f"cuda:{local_rank}")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    return ShardedLearner(model, options, critic, mesh)
