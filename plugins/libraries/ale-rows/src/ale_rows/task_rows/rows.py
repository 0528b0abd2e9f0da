"""Rows of JSON files and of data sets, with the place of each."""

import gzip
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import InputError, Problem, nearest
from ale.strict import decoded

ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".parquet")
"""Endings of files with rows."""


class RowError(Exception):
    """A row lacks something; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


@frozen
class Row:
    """One problem as it is stored."""

    data: Mapping[str, Any]
    file: str
    """File, or name of the data set."""
    line: int
    """1-based line at which it begins; of a data set, the number of the row."""
    name: str
    """The file's name without its endings, and the row's position: for ids."""
    index: int
    """0-based position in its file."""
    expected: str = field(repr=False)
    """The content that such a row should have, for errors."""

    def problem(self, message: str, path: str | None = None) -> RowError:
        """An error that names the row."""
        return RowError(
            Problem(
                message=message,
                file=self.file,
                line=self.line,
                path=path,
                expected=self.expected,
            )
        )

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """A value of a type; the default where there is none.

        Raises:
            RowError: it is of another type, or there is neither a value nor a default.
        """
        value = self.data.get(name)
        if value is None:
            if default is not None:
                return default
            if name in self.data:
                raise self.problem(f"'{name}' is null", name)
            hint = nearest(name, map(str, self.data))
            raise self.problem(f"'{name}' is missing" + (f"; {hint}" if hint else ""), name)
        if not isinstance(value, kind) or isinstance(value, bool):
            found = f"{type(value).__name__} {value!r}"[:80]
            raise self.problem(f"expected {_WORDS.get(kind, kind.__name__)}, found {found}", name)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text. Raises as `get`."""
        text: str = self.get(name, str, default)
        return text

    def texts(self, name: str, default: list[str] | None = None) -> list[str]:
        """A list of texts. Raises as `get`."""
        values = self.get(name, list, default)
        if not all(isinstance(value, str) for value in values):
            raise self.problem("expected a list of texts", name)
        return list(values)


_WORDS = {str: "a text", list: "a list", int: "a whole number", object: "a text or a number"}


def unusable(path: Path, message: str, expected: str, **about: Any) -> InputError:
    """The error for a file or folder that holds no rows.

    Args:
        expected: what such a file holds.
        about: see `Problem`.
    """
    return InputError.of(message, file=str(path), expected=expected, **about)


def rows_of(path: Path, expected: str) -> Iterator[Row]:
    """The rows of a file: an object per line, or one array or object; ``.gz`` is unpacked.

    A ``.parquet`` file is read by pyarrow, which comes with the library ``datasets``.

    Raises:
        InputError: it can't be read, or something in it is no JSON object.
    """
    if path.suffix == ".parquet":
        yield from _rows_of_parquet(path, expected)
        return
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise unusable(path, f"can't be read: {why}", expected) from error
    text = decoded(data, path)
    name = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    for index, (line, data) in enumerate(_objects(text, path, expected)):
        if not isinstance(data, dict):
            message = f"expected a JSON object, found {json.dumps(data)[:60]}"
            raise unusable(path, message, expected, line=line)
        yield Row(data, str(path), line, f"{name}-{index}", index, expected)


def _rows_of_parquet(path: Path, expected: str) -> Iterator[Row]:
    try:
        parquet: Any = import_module("pyarrow.parquet")
        found = parquet.read_table(path).to_pylist()
    except ImportError as error:
        message = "a .parquet file needs pyarrow, which is not installed"
        hint = "pip install datasets"
        raise InputError.of(message, file=str(path), hint=hint) from error
    except (OSError, ValueError) as error:
        raise unusable(path, f"can't be read: {error}", expected) from error
    name = path.name.removesuffix(".parquet")
    for index, data in enumerate(found):
        yield Row(data, str(path), index + 1, f"{name}-{index}", index, expected)


def _objects(text: str, path: Path, expected: str) -> Iterator[tuple[int, Any]]:
    """Each value with its line; commas and brackets of an array around them are passed over."""
    decoder = json.JSONDecoder()
    at, in_array = _skip(text, 0), text.lstrip()[:1] == "["
    if in_array:
        at = _skip(text, at + 1)
    line, counted = 1, 0
    while at < len(text) and not (in_array and text[at] == "]"):
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except (JSONDecodeError, RecursionError) as error:
            wrong = error.lineno if isinstance(error, JSONDecodeError) else line
            raise unusable(path, f"not JSON: {error}", expected, line=wrong) from error
        yield line, value
        at = _skip(text, at)
        if in_array and text[at : at + 1] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n\ufeff":
        at += 1
    return at


def rows_of_dataset(name: str, subset: str | None, split: str, expected: str) -> Iterator[Row]:
    """The rows of a split of a data set, read by the library ``datasets``.

    Raises:
        InputError: the library is not installed, or can't load it.
    """
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        message = "'dataset' needs the library datasets, which is not installed"
        hint = "pip install datasets"
        raise InputError.of(message, path="tasks.dataset", hint=hint) from error
    try:
        found = datasets.load_dataset(name, subset, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        message = f"the data set {name} (subset {subset}, split {split}) can't be loaded: {error}"
        raise InputError.of(message, path="tasks.dataset") from error
    for index, data in enumerate(found):
        yield Row(data, name, index + 1, f"{split}-{index}", index, expected)
