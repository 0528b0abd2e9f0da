"""A model of bigrams as files that server programs read, for fakes of such programs."""

import json
import struct
from itertools import pairwise
from pathlib import Path

import msgspec

from ale_servers.channel import WeightFolder
from ale_servers.records import Weights
from ale_servers.tensors import digest_of, stored_in
from ale_servers.testing.bigram import CONTEXT, VOCABULARY, row

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
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": CONTEXT + 1}))
    write(folder / "model.safetensors", "table 0")


class TableLab:
    """See `contract.ServerLab` and `adapters.AdapterLab`."""

    stop_id = 3
    prompt: tuple[int, ...] = tuple(range(VOCABULARY))

    def __init__(self, folder: Path) -> None:
        self._root = folder

    def publish(self, version: int) -> Weights:
        """As `contract.ServerLab.publish`."""
        folder = WeightFolder(self._root / "weights", keep=8)
        return folder.publish(
            version, lambda to: write(to / "model.safetensors", f"table {version}")
        )

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        """As `contract.ServerLab.logprobs`."""
        return [row(f"table {version}", before)[token] for before, token in pairwise(ids)]

    def publish_adapter(self, name: str, version: int) -> Weights:
        """As `adapters.AdapterLab.publish_adapter`."""

        def fill(to: Path) -> str:
            (to / "adapter_config.json").write_text("{}")
            return write(to / "adapter_model.safetensors", f"table {name} {version}")

        made = WeightFolder(self._root / name, keep=8).publish(version, fill)
        return msgspec.structs.replace(made, adapter=name)

    def adapter_logprobs(self, name: str, version: int, ids: tuple[int, ...]) -> list[float]:
        """As `adapters.AdapterLab.adapter_logprobs`."""
        return [row(f"table {name} {version}", before)[token] for before, token in pairwise(ids)]
