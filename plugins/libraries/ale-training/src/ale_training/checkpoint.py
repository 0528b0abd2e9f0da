"""A checkpoint: one safetensors file of tensors, and one JSON file of counters."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ale.errors import StoreError
from ale.files import replacing, write_whole

TENSORS = "trainer.safetensors"
STATE = "trainer.json"
WEIGHT = "weight/"
"""Prefix of the names of trained parameters."""
SCHEMA = 1


class State(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Facts that every trainer stores besides its tensors; a trainer adds its own fields."""

    schema: int = SCHEMA
    trainer: str
    fingerprint: str
    version: int
    updates: int
    digest: str | None = None
    """SHA-256 of the file of tensors, which `write` adds; None if an earlier version wrote it."""
    own_digest: str | None = None
    """SHA-256 of the other fields, added and left out as `digest`."""


S = TypeVar("S", bound=State)
T = TypeVar("T")


def write(directory: Path, state: State, tensors: Mapping[str, Tensor]) -> None:
    """Write both files atomically, the counters last and with the digest of the tensors.

    Raises:
        StoreError: a file can't be written.
    """
    path = directory / TENSORS
    try:
        with replacing(path) as partial:
            found = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            save_file(found, partial)
            digest = digest_of(partial)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path} can't be written: {error}") from error
    state = msgspec.structs.replace(state, digest=digest)
    state = msgspec.structs.replace(state, own_digest=_own_digest(msgspec.json.encode(state)))
    write_whole(directory / STATE, msgspec.json.encode(state), sync=True)


def _own_digest(data: bytes) -> str:
    """Of counters as they are stored: other versions may have other fields."""
    fields = {name: value for name, value in json.loads(data).items() if name != "own_digest"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal; raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(
    directory: Path,
    kind: type[S],
    *,
    trainer: str,
    fingerprint: str,
    prefixes: tuple[str, ...] = ("",),
) -> tuple[S, dict[str, Tensor]]:
    """Read both files; of the tensors, those whose names begin with one of the prefixes.

    Raises:
        StoreError: a file can't be read, is damaged, or is of another trainer or another model.
    """
    state = read_state(directory, kind, trainer=trainer)
    if state.fingerprint != fingerprint:
        raise StoreError(
            f"{directory} is a checkpoint of another model or other adapters: its fingerprint is "
            f"{state.fingerprint}, and this model's is {fingerprint}"
        )
    check_digest(directory, state)
    return state, read_tensors(directory, prefixes)


def check_digest(directory: Path, state: State) -> None:
    """Raise `StoreError` if the file of tensors is not the one that was written with the counters.

    A safetensors file with changed values can still be read.
    """
    if state.digest is not None:
        check_file(directory / TENSORS, state.digest)


def check_file(path: Path, digest: str) -> None:
    """Raise `StoreError` if a file of a checkpoint has another digest than its counters say."""
    try:
        same = digest == digest_of(path)
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}") from error
    if not same:
        raise StoreError(
            f"{path} is damaged or of another checkpoint: {STATE} has another SHA-256 for it"
        )


def read_tensors(directory: Path, prefixes: tuple[str, ...]) -> dict[str, Tensor]:
    """Read the tensors whose names begin with one of the prefixes.

    Raises:
        StoreError: the file can't be read.
    """
    path = directory / TENSORS
    try:
        with safe_open(path, framework="pt") as tensors:
            names = [name for name in tensors.keys() if name.startswith(prefixes)]  # noqa: SIM118
            return {name: tensors.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path} can't be read: {error}") from error


def read_state(directory: Path, kind: type[S], *, trainer: str) -> S:
    """Read the counters.

    Raises:
        StoreError: the file can't be read, was changed, or is of another trainer.
    """
    path = directory / STATE
    head = _decoded(path, _Head, trainer)
    if head.schema != SCHEMA or head.trainer != trainer:
        raise StoreError(
            f"{path}: of trainer {head.trainer}, schema {head.schema}; "
            f"not of trainer {trainer}, schema {SCHEMA}"
        )
    state = _decoded(path, kind, trainer)
    if state.own_digest not in (None, _own_digest(path.read_bytes())):
        raise StoreError(f"{path} was changed after it was written")
    return state


def _decoded(path: Path, kind: type[T], trainer: str) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        message = f"{path.parent} is no checkpoint of trainer {trainer}: {path.name}: {cause}"
        raise StoreError(message) from error


class _Head(msgspec.Struct):
    """Read first: the other fields depend on the trainer."""

    schema: int
    trainer: str


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Read the trained parameters by name, without the optimiser's moments.

    Raises:
        StoreError: the file can't be read.
    """
    found = read_tensors(directory, (WEIGHT,))
    return {name.removeprefix(WEIGHT): tensor for name, tensor in found.items()}
