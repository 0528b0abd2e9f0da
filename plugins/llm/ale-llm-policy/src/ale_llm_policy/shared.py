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
from ale_servers.own_folder import own_folder
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

    def obstacle(self) -> str | None:
        """Why weights can't be shared here."""
        if self._device is None or self._device.type == "cuda":
            return None
        return (
            "llm.weights_channel: cuda_ipc shares the memory of the GPU on which the run trains, "
            f"and llm.device is '{self._device.type}'; expected: a GPU, or 'shared_memory'"
        )

    def publish(self, version: int, tensors: Mapping[str, Tensor]) -> Weights:
        """Copy the weights to where servers read them.

        Raises:
            AleError: there is no room, or an `obstacle`.
        """
        if obstacle := self.obstacle():
            raise AleError(obstacle)
        parts, size = layout(tensors)
        listed = tuple(msgspec.convert(each, Part) for each in parts)
        if self._buffer is None or self._memory is None or self._memory.parts != listed:
            self.remove()
            try:
                self._buffer, place = self._allocated(size)
            except OSError as error:
                what = f"{size / 1e9:.2f} GB of weights"
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
        root = _SHARED if _SHARED.is_dir() else Path(tempfile.gettempdir())
        self._folder = own_folder(root)
        file = str(self._folder[0] / "weights")
        return file_buffer(file, size, create=True), {"file": file}

    def remove(self) -> None:
        """Free the memory. Idempotent."""
        self._buffer = self._memory = None
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder[0], ignore_errors=True)
            os.close(folder[1])


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
