"""The trainer's own torch random state, so that a resumed run draws the same numbers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


class RandomState:
    """The random state for dropout and for the adapters' initial weights.

    Args:
        seed: the run's.
        device: where the model is; a GPU has a state of its own.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(self._devices):
            torch.manual_seed(seed)
            self._save()

    def _save(self) -> None:
        self._cpu = torch.get_rng_state()
        self._gpu = [torch.cuda.get_rng_state(device) for device in self._devices]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use this state inside the block; the global state is restored afterwards."""
        with torch.random.fork_rng(self._devices):
            torch.set_rng_state(self._cpu)
            for device, state in zip(self._devices, self._gpu, strict=True):
                torch.cuda.set_rng_state(state, device)
            try:
                yield
            finally:
                self._save()

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint, by name."""
        return {"random/cpu": self._cpu} | {
            f"random/gpu{i}": state for i, state in enumerate(self._gpu)
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned.

        Raises:
            KeyError: a tensor is missing.
        """
        self._cpu = tensors["random/cpu"].clone()
        # A checkpoint from a machine without this GPU has no state for it: use the seed.
        self._gpu = [tensors.get(f"random/gpu{i}", old) for i, old in enumerate(self._gpu)]
