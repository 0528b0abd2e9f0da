"""Tensors in files of the format safetensors: names, shapes and a digest, without torch."""

import hashlib
import json
import mmap
import struct
from collections.abc import Mapping, Sequence
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


def digest_of(tensors: Mapping[str, Stored]) -> str:
    """SHA-256 over names, types, shapes and values, as `records.Weights.digest`."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{tensor.shape}".encode())
        if tensor.end > tensor.begin:
            with (
                tensor.file.open("rb") as opened,
                mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as whole,
                whole[tensor.begin : tensor.end] as part,
            ):
                digest.update(part)
    return digest.hexdigest()


def shapes_of(tensors: Mapping[str, Stored]) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {name: tensor.shape for name, tensor in tensors.items()}
