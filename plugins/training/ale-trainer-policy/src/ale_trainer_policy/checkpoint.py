"""A checkpoint: one safetensors file of tensors, and one JSON file of counters."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ale.errors import StoreError

TENSORS = "trainer.safetensors"
STATE = "trainer.json"
SCHEMA = 1


class State(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything in a checkpoint that is not a tensor."""

    schema: int = SCHEMA
    trainer: str
    fingerprint: str
    version: int
    updates: int
    bad_steps: int
    generator: dict[str, Any]
    """State of the generator that shuffles minibatches."""
    kept_versions: list[int]


def write(directory: Path, state: State, tensors: Mapping[str, Tensor]) -> None:
    """Write both files atomically, the counters last."""
    partial = directory / f"{TENSORS}.partial"
    save_file({name: tensor.cpu() for name, tensor in tensors.items()}, partial)
    partial.replace(directory / TENSORS)
    partial = directory / f"{STATE}.partial"
    with partial.open("wb") as file:
        file.write(msgspec.json.encode(state))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(directory / STATE)


def read(directory: Path, trainer: str, fingerprint: str) -> tuple[State, dict[str, Tensor]]:
    """Read both files.

    Raises:
        StoreError: a file can't be read, or is of another trainer or another model.
    """
    state = read_state(directory, trainer)
    if state.fingerprint != fingerprint:
        raise StoreError(
            f"{directory} is a checkpoint of another model: its fingerprint is "
            f"{state.fingerprint}, and this model's is {fingerprint}"
        )
    try:
        tensors = load_file(directory / TENSORS)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{directory / TENSORS} can't be read: {error}") from error
    return state, tensors


def read_state(directory: Path, trainer: str) -> State:
    """Read the counters.

    Raises:
        StoreError: the file can't be read, or is of another trainer.
    """
    try:
        state = msgspec.json.decode((directory / STATE).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{directory} is no checkpoint of trainer {trainer}: {error}") from error
    if state.schema != SCHEMA or state.trainer != trainer:
        raise StoreError(
            f"{directory / STATE}: of trainer {state.trainer}, schema {state.schema}; "
            f"not of trainer {trainer}, schema {SCHEMA}"
        )
    return state


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Read the trained parameters by name, without the optimiser's moments.

    Raises:
        StoreError: the file can't be read.
    """
    path, prefix = directory / TENSORS, "weight/"
    try:
        with safe_open(path, framework="pt") as tensors:
            names = [name for name in tensors.keys() if name.startswith(prefix)]  # noqa: SIM118
            return {name.removeprefix(prefix): tensors.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path} can't be read: {error}") from error


def plain(state: Any) -> Any:
    """A generator's state in JSON types."""
    if isinstance(state, Mapping):
        return {key: plain(value) for key, value in state.items()}
    return state if isinstance(state, str) else int(state)
