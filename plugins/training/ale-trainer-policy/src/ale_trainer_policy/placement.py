"""Where a model's weights are: in another copy, on no device yet, or sharded over ranks."""

import copy
from typing import Any

import torch
from attrs import frozen
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import distribute_tensor

from ale_trainer_policy.options import LearnOptions

HALF = (torch.bfloat16, torch.float16)


@frozen(kw_only=True)
class Placement:
    """How a model is sharded; the same on every rank."""

    device: str
    """Type of the device that computes."""
    half: torch.dtype | None
    """Type of gathered weights and matrix products; None: that of the weights themselves."""
    handed: torch.dtype | None
    """Type of the weights that are handed over, as the sampler holds them; None: their own."""
    on_host: bool
    """Shards, gradients and moments stay in the processor's memory."""
    replicas: int
    """Number of whole copies of the sharded model."""

    def mesh(self, n: int) -> DeviceMesh:
        """The mesh of all `n` ranks: one dimension, or copies and their shards (HSDP)."""
        if self.replicas == 1:
            return init_device_mesh(self.device, (n,))
        shape = (self.replicas, n // self.replicas)
        return init_device_mesh(self.device, shape, mesh_dim_names=("replicate", "shard"))

    def shard(self, module: Any, layers: Any, mesh: DeviceMesh, *, exact: bool = False) -> None:
        """Shard a module in place, layer by layer.

        Args:
            layers: the transformers model that has the layers; None: no layers.
            exact: parts outside the layers compute in their own precision.
        """
        mixed = MixedPrecisionPolicy()
        if self.half is not None:
            mixed = MixedPrecisionPolicy(param_dtype=self.half, reduce_dtype=torch.float32)
        offload = OffloadPolicy()
        if self.on_host:
            offload = CPUOffloadPolicy(pin_memory=self.device == "cuda")
        blocks = set(getattr(layers, "_no_split_modules", None) or ())
        for inner in module.modules():
            if type(inner).__name__ in blocks:
                fully_shard(inner, mesh=mesh, mp_policy=mixed, offload_policy=offload)
        rest = MixedPrecisionPolicy() if exact else mixed
        fully_shard(module, mesh=mesh, mp_policy=rest, offload_policy=offload)

    def fill(self, module: Any, source: Any | None) -> None:
        """Allocate a sharded module that is on no device, and fill in its weights; collective.

        Args:
            source: the module that has the weights, on rank 0; None elsewhere.
        """
        kept = [
            (owner, name, buffer)
            for owner in module.modules()
            for name, buffer in owner.named_buffers(recurse=False)
        ]
        module.to_empty(device="cpu" if self.on_host else self.device)
        for owner, name, buffer in kept:
            # This includes buffers that no state dict holds, such as position frequencies.
            owner._buffers[name] = buffer.to(self.device)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=self.device)
                if source is not None:
                    whole.copy_(source.get_parameter(name))
                # Each rank gets its shard of rank 0's tensor.
                found = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
                parameter.to_local().copy_(found.to_local())


def placement_of(model: Any, options: LearnOptions, device: torch.device) -> Placement:
    """The placement of a model that several ranks train on devices of this kind."""
    first = next(model.parameters())
    half = first.dtype if first.dtype in HALF else None
    return Placement(
        device=device.type,
        half=torch.bfloat16 if options.precision == "bf16" else half,
        handed=half,
        on_host=options.offload == "host",
        replicas=options.replicas,
    )


def view(model: Any) -> Any:
    """A copy of a model's modules over the same weights, to which adapters may be added."""
    own = {id(p): torch.nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, own)


def skeleton(module: Any) -> Any:
    """A copy on no device. Trained weights are float32: half precision loses small updates."""
    own: dict[int, Any] = {}
    for each in module.parameters():
        exact = each.requires_grad and each.dtype in HALF
        empty = torch.empty_like(each, device="meta", dtype=torch.float32 if exact else each.dtype)
        own[id(each)] = torch.nn.Parameter(empty, each.requires_grad)
    return copy.deepcopy(module, own)


def device_of(model: Any) -> torch.device:
    """The device on which a model computes, wherever its weights are."""
    first = next(model.parameters())
    mesh = getattr(first, "device_mesh", None)
    if mesh is not None and mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    found: torch.device = first.device
    return found
