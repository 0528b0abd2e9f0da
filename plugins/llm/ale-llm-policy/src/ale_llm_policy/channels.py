"""How a run hands weights to its servers, and the way through a folder."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from torch import Tensor

from ale_llm_policy import adapters
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_servers.channel import WeightFolder
from ale_servers.records import Weights


class Channel(Protocol):
    """Holds the newest weights of a run where its servers get them."""

    def obstacle(self, tensors: Mapping[str, Tensor]) -> str | None:
        """Why such weights can't be handed over on this machine; None if they can."""
        ...

    def publish(self, version: int, tensors: Mapping[str, Tensor]) -> Weights:
        """Let the servers have this version; it may take the place of the one before.

        Raises:
            AleError, OSError: it can't be held.
        """
        ...

    def remove(self) -> None:
        """Forget all versions. Idempotent."""
        ...


class FolderWeights:
    """The weight channel `folder`, of files; for adapters too."""

    def __init__(self, folder: WeightFolder) -> None:
        self._folder = folder

    def obstacle(self, tensors: Mapping[str, Tensor]) -> str | None:
        """None: whether the disk has enough space shows when they are written."""
        return None

    def publish(self, version: int, tensors: Mapping[str, Tensor]) -> Weights:
        """Write the weights."""
        # Once to the processor's memory, for the digest and for the files.
        here = {name: each.detach().cpu() for name, each in tensors.items()}

        def write(folder: Path) -> str:
            with ThreadPoolExecutor(1) as beside:
                digest = beside.submit(weights.digest, here)
                weights.write(folder, here)
                return digest.result()

        return self._folder.publish(version, write)

    def publish_adapter(self, version: int, policy: TorchPolicy) -> Weights:
        """Write the adapters that the policy's model has."""

        def write(folder: Path) -> str:
            with policy.lock:
                return adapters.write(folder, policy.base)

        return self._folder.publish(version, write)

    def remove(self) -> None:
        """Remove all versions."""
        self._folder.remove()
