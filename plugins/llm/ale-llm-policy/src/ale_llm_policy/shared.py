"""The weight channels `shared_memory` and `cuda_ipc`: memory that servers on this machine read."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from ale.errors import AleError
from ale_llm_policy.pretrained import weights
from ale_servers.channel import this_machine
from ale_servers.own_folder import own_folder, remove_left
from ale_servers.records import Memory, Part, Weights
from ale_servers.shared_memory import (
    check_digest,
    file_buffer,
    gpu_buffer,
    layout,
    opened,
    set_digest,
    views,
)

_SHARED = Path("/dev/shm")  # noqa: S108 - the folder inside is this user's own


class SharedWeights:
    """The newest version of a run's weights; a server that still reads the one before sees that it
    was replaced.

    Args:
        device: the GPU in whose memory they are; None for the processor's.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._device = device
        self._buffer: Tensor | None = None
        self._memory: Memory | None = None
        self._folder: tuple[Path, int] | None = None

    def obstacle(self, tensors: Mapping[str, Tensor]) -> str | None:
        """Why such weights can't be shared here. Frees what killed runs have left."""
        if self._device is None:
            return _too_little(layout(tensors)[1])
        if self._device.type == "cuda":
            return None
        return (
            "llm.weights_channel: cuda_ipc shares the memory of the GPU on which the run trains, "
            f"and llm.device is '{self._device.type}'; expected: a GPU, or 'shared_memory'"
        )

    def publish(self, version: int, tensors: Mapping[str, Tensor]) -> Weights:
        """Copy the weights to where servers read them.

        Raises:
            AleError: there is too little memory, or an `obstacle`.
        """
        parts, size = layout(tensors)
        listed = tuple(msgspec.convert(each, Part) for each in parts)
        if self._buffer is None or self._memory is None or self._memory.parts != listed:
            self.remove()
            if obstacle := self.obstacle(tensors):
                raise AleError(obstacle)
            try:
                self._buffer, place = self._allocated(size)
            except OSError as error:
                what = f"{size / 1e9:.3g} GB of weights"
                raise AleError(f"{what} can't be shared: {error}") from error
            self._memory = Memory(machine=this_machine(), size=size, parts=listed, **place)
        set_digest(self._buffer, None)
        shared = dict(views(self._buffer, parts))
        for name, each in tensors.items():
            shared[name].copy_(each.detach())
        digest = weights.digest(shared)
        set_digest(self._buffer, digest)
        return Weights(version=version, digest=digest, memory=self._memory)

    def _allocated(self, size: int) -> tuple[Tensor, dict[str, str]]:
        if self._device is not None:
            buffer, handle, gpu = gpu_buffer(size, self._device)
            return buffer, {"handle": handle, "gpu": gpu}
        self._folder = own_folder(_root())
        file = str(self._folder[0] / "weights")
        return file_buffer(file, size, create=True), {"file": file}

    def remove(self) -> None:
        """Free the memory. Idempotent."""
        self._buffer = self._memory = None
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder[0], ignore_errors=True)
            os.close(folder[1])


def _root() -> Path:
    return _SHARED if _SHARED.is_dir() else Path(tempfile.gettempdir())


def _too_little(size: int) -> str | None:
    """Why the weights don't fit, if so: containers often have 64 MB of shared memory."""
    root = _root()
    remove_left(root)
    usage = shutil.disk_usage(root)
    if size <= usage.free or not usage.total:  # a tmpfs without a limit has the total 0
        return None
    return (
        f"{size / 1e9:.3g} GB of weights can't be shared: {root} has {usage.free / 1e9:.3g} GB "
        "free; make it larger (docker run --shm-size, mount -o remount,size=...), or set "
        "llm.weights_channel: folder"
    )


def read(memory: Memory, digest: str) -> dict[str, Tensor]:
    """A copy of weights in shared memory, by name.

    Raises:
        OSError: they can't be read here, or have been replaced.
    """
    plain: dict[str, Any] = msgspec.to_builtins(memory)
    buffer = opened(plain)
    check_digest(buffer, digest)
    tensors = {name: each.clone() for name, each in views(buffer, plain["parts"])}
    check_digest(buffer, digest)
    return tensors
