"""A checkpoint: one safetensors file of tensors, and one JSON file of counters."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from safetensors import SafetensorError
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


def write(directory: Path, state: State, tensors: Mapping[str, Tensor]) -> None:
    """Write both files atomically, the counters last."""
    partial = directory / f"{TENSORS}.partial"
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, partial)
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
        StoreError: they can't be read, or belong to another trainer or another model.
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
    if state.fingerprint != fingerprint:
        raise StoreError(
            f"{directory} is a checkpoint of another model or other adapters: "
            f"{state.fingerprint}, and not {fingerprint}"
        )
    try:
        tensors = load_file(directory / TENSORS)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{directory / TENSORS} can't be read: {error}") from error
    return state, tensors
