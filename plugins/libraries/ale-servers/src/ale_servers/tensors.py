"""Tensors in files of the format safetensors: names, shapes and a digest, without torch."""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from attrs import frozen

from ale_servers.protocol import WeightsError

_TYPES = {
    "F64": "torch.float64",
    "F32": "torch.float32",
    "F16": "torch.float16",
    "BF16": "torch.bfloat16",
    "F8_E4M3": "torch.float8_e4m3fn",
    "F8_E5M2": "torch.float8_e5m2",
    "I64": "torch.int64",
    "I32": "torch.int32",
    "I16": "torch.int16",
    "I8": "torch.int8",
    "U8": "torch.uint8",
    "BOOL": "torch.bool",
}
_LENGTH = struct.Struct("<Q")
_BLOCK = 1 << 20
_MOST_THREADS = 8


@frozen
class Stored:
    """A tensor in a file."""

    file: Path
    dtype: str
    """The type's name as torch writes it."""
    shape: tuple[int, ...]
    begin: int
    end: int
    """Position in the file, in bytes."""


def stored_in(files: Sequence[Path]) -> dict[str, Stored]:
    """The tensors of ``*.safetensors`` files by name.

    Raises:
        WeightsError: there are no tensors, or a file can't be read.
    """
    found: dict[str, Stored] = {}
    for file in files:
        if file.suffix != ".safetensors":
            continue
        try:
            found |= _header(file)
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise WeightsError(f"{file} can't be read: {error}") from error
    if not found:
        raise WeightsError(f"no tensors in {', '.join(map(str, files)) or 'no files'}")
    return found


def _header(file: Path) -> dict[str, Stored]:
    with file.open("rb") as opened:
        (length,) = _LENGTH.unpack(opened.read(_LENGTH.size))
        size = file.stat().st_size
        if length > size:
            raise ValueError(f"its header would have {length} of {size} bytes")
        header = json.loads(opened.read(length))
    start = _LENGTH.size + length
    header.pop("__metadata__", None)
    found = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        if start + end > size:
            raise ValueError(f"{name} ends at byte {start + end} of {size}")
        shape = tuple(map(int, about["shape"]))
        found[name] = Stored(file, _TYPES[about["dtype"]], shape, start + begin, start + end)
    return found


@frozen
class Hashed:
    """A tensor, as `digest` reads it."""

    name: str
    dtype: str
    """The type's name as torch writes it."""
    shape: tuple[int, ...]
    size: int
    """Bytes of its values."""
    read: Callable[[int, int], bytes | memoryview]
    """The values from one byte up to another; called in several threads at once."""


def digest(tensors: Iterable[Hashed]) -> str:
    """SHA-256 over names, types and shapes, and over the SHA-256 of each MiB of values.

    One processor hashes 1 to 2 GB a second; the MiBs of a tensor are hashed side by side.

    Args:
        tensors: in the order of their names.
    """

    def hashed(tensor: Hashed, begin: int) -> bytes:
        return hashlib.sha256(tensor.read(begin, min(begin + _BLOCK, tensor.size))).digest()

    found = hashlib.sha256()
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
        for tensor in tensors:
            found.update(f"{tensor.name}{tensor.dtype}{tensor.shape}".encode())
            for each in threads.map(partial(hashed, tensor), range(0, tensor.size, _BLOCK)):
                found.update(each)
    return found.hexdigest()


def digest_of(tensors: Mapping[str, Stored]) -> str:
    """The digest of tensors in files, as `records.Weights.digest`."""

    def opened() -> Iterable[Hashed]:
        for name in sorted(tensors):
            stored = tensors[name]
            with stored.file.open("rb") as file:
                read = partial(_read, file.fileno(), stored.begin)
                yield Hashed(name, stored.dtype, stored.shape, stored.end - stored.begin, read)

    return digest(opened())


def _read(file: int, at: int, begin: int, end: int) -> bytes:
    return os.pread(file, end - begin, at + begin)


def shapes_of(tensors: Mapping[str, Stored]) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {name: tensor.shape for name, tensor in tensors.items()}
