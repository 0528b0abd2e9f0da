"""The digest of tensors in files: of every name, type, shape and value, in several MiB too."""

import json
import struct
from pathlib import Path

import pytest

from ale_servers.tensors import Hashed, digest, digest_of, stored_in

SIZE = (5 << 20) + 12


def write(file: Path, values: bytes, *, name: str = "w", dtype: str = "F32") -> str:
    """One tensor in a file; the digest that the file has."""
    about = {"dtype": dtype, "shape": [len(values) // 4], "data_offsets": [0, len(values)]}
    header = json.dumps({name: about}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + values)
    return digest_of(stored_in([file]))


def test_a_file_has_the_digest_of_its_values_in_memory(tmp_path: Path) -> None:
    values = bytes(n % 251 for n in range(SIZE))
    held = memoryview(values)
    read = lambda begin, end: held[begin:end]  # noqa: E731
    inside = digest([Hashed("w", "torch.float32", (SIZE // 4,), SIZE, read)])
    assert write(tmp_path / "w.safetensors", values) == inside


@pytest.mark.parametrize("at", [0, (1 << 20) - 1, 1 << 20, 3 << 20, SIZE - 1])
def test_each_byte_counts_wherever_it_is(tmp_path: Path, at: int) -> None:
    values = bytearray(SIZE)
    before = write(tmp_path / "w.safetensors", bytes(values))
    values[at] = 1
    assert write(tmp_path / "w.safetensors", bytes(values)) != before


def test_names_types_and_the_order_of_values_count(tmp_path: Path) -> None:
    first, second = b"a" * (1 << 20), b"b" * (1 << 20)
    file = tmp_path / "w.safetensors"
    found = [
        write(file, first + second),
        write(file, second + first),
        write(file, first + second, name="v"),
        write(file, first + second, dtype="I32"),
    ]
    assert len({*found}) == len(found)
