"""A model of bigrams as files that server programs read, for fakes of such programs."""

import json
import struct
from pathlib import Path

from ale_servers.tensors import digest_of, stored_in
from ale_servers.testing.bigram import CONTEXT, VOCABULARY, BigramLab

_LETTERS = 32


def write(file: Path, table: str) -> str:
    """Write a table as the only tensor of a file; returns the digest."""
    content = table.encode().ljust(_LETTERS)
    header = {"table": {"dtype": "U8", "shape": [_LETTERS], "data_offsets": [0, _LETTERS]}}
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + content)
    return digest_of(stored_in([file]))


def read(folder: Path) -> str:
    """The table in a folder.

    Raises:
        ValueError: there is no table, or it is incomplete.
    """
    (file,) = folder.glob("*.safetensors")
    content = file.read_bytes()[-_LETTERS:].decode()
    if not content.startswith("table"):
        raise ValueError(f"{file} has no table")
    return content.rstrip()


def write_model(folder: Path) -> None:
    """Write a model of version 0 with which a gateway can be started."""
    folder.mkdir(parents=True)
    config = {"max_position_embeddings": CONTEXT + 1, "vocab_size": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(config))
    write(folder / "model.safetensors", "table 0")


class TableLab(BigramLab):
    """A lab whose weights are such files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "weights")

    def write(self, table: str, folder: Path) -> str:
        """Write weights; returns their digest."""
        return write(folder / "model.safetensors", table)

    def write_adapter(self, table: str, folder: Path) -> str:
        """Write an adapter; returns its digest."""
        (folder / "adapter_config.json").write_text("{}")
        return write(folder / "adapter_model.safetensors", table)
