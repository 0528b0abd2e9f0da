"""Rows of a data set, one at a time, each with its place in the data set."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import InputError
from ale.strict import decoded

Row = Mapping[str, Any]
Place = tuple[str, int]
"""File, and line (JSON Lines) or row (the other forms), from 1."""

EXPECTED = "a file .jsonl or .parquet, or a folder of Hugging Face datasets"


@frozen(kw_only=True)
class Data:
    """What is trained on, and what is held out."""

    train: Any
    """A `datasets.Dataset`."""
    held_out: Any = None
    """Another, or None."""
    left_out: Mapping[str, int] = field(factory=dict)
    """Number of rows left out, by reason."""
    fingerprint: str
    """Of all rows that were not left out, in order."""


def is_conversation(value: Any) -> bool:
    """Is it a list of messages, each with a role?"""
    return isinstance(value, list) and all(
        isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in value
    )


def read_rows(path: Path) -> Iterator[tuple[Place, Row]]:
    """The rows of a data set; memory does not grow with it.

    Raises:
        InputError: the data set does not exist, or a line is not a JSON object.
    """
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise InputError.of(f"no such file: {path}", path="dataset_path", expected=EXPECTED)
    if path.suffix == ".parquet":
        return _parquet(path)
    return _lines(path)


def _lines(path: Path) -> Iterator[tuple[Place, Row]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(decoded(line, path, line=number))
            except (ValueError, RecursionError) as error:
                raise InputError.of(f"no JSON: {error}", file=str(path), line=number) from error
            if not isinstance(row, dict):
                raise InputError.of("no JSON object", file=str(path), line=number)
            yield (str(path), number), row


def _parquet(path: Path) -> Iterator[tuple[Place, Row]]:
    from pyarrow import ArrowInvalid  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        batches = ParquetFile(path).iter_batches(batch_size=256)
        number = 0
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield (str(path), number), row
    except ArrowInvalid as error:
        raise InputError.of(f"{path} is no Parquet file: {error}", path="dataset_path") from error


def _folder(path: Path) -> Iterator[tuple[Place, Row]]:
    from datasets import DatasetDict, load_from_disk  # type: ignore[import-untyped]

    try:
        found = load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise InputError.of(
            f"{path} is no folder of Hugging Face datasets: {error}",
            path="dataset_path",
            expected=EXPECTED,
        ) from error
    if isinstance(found, DatasetDict):
        if "train" not in found:
            names = ", ".join(map(str, found))
            raise InputError.of(f"{path} has no split 'train', but {names}", path="dataset_path")
        found = found["train"]
    for number, row in enumerate(found, start=1):
        yield (str(path), number), row
