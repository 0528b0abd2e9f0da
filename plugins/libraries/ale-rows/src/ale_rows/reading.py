"""Read lines one at a time or by offset, and explain invalid ones."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar, get_args

import msgspec

from ale.errors import InputError
from ale.strict import decoded
from ale.types import Episode
from ale_rows.rows import KINDS, MADE_BY, SCHEMA

T = TypeVar("T")


class RowFile(Generic[T], AbstractContextManager["RowFile[T]"]):
    """An open file of JSON lines, to iterate over and to read at offsets."""

    def __init__(self, path: Path, cls: type[T]) -> None:
        """Open it.

        Args:
            cls: class of a line: a row, or a struct with the fields that are needed.

        Raises:
            InputError: it does not exist, or is not a file.
        """
        self.path = path
        self._cls = cls
        self._decoder = msgspec.json.Decoder(cls)
        self._file = opened(path)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """Every row with the offset of its line."""
        decode = self._decoder.decode
        self._file.seek(0)
        offset = 0
        for number, line in enumerate(self._file, 1):
            try:
                row = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise refused(line, self._cls, error, self.path, number) from None
            yield offset, row
            offset += len(line)

    def at(self, offset: int) -> T:
        """The row whose line starts at `offset`."""
        self._file.seek(offset)
        line = self._file.readline()
        try:
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            number = self.number(offset)
            raise refused(line, self._cls, error, self.path, number) from None

    def number(self, offset: int) -> int:
        """The 1-based number of the line at `offset`, for messages."""
        self._file.seek(0)
        return 1 + sum(1 for _ in _until(self._file, offset))


def opened(path: Path) -> BinaryIO:
    """A file of lines, open for reading.

    Raises:
        InputError: it does not exist, or can't be read.
    """
    try:
        return path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise InputError.of(_no_file(path, error), file=str(path)) from None


def _no_file(path: Path, error: OSError) -> str:
    return "no such file" if not path.exists() else f"can't be read: {error.strerror}"


def _until(file: BinaryIO, offset: int) -> Iterator[bytes]:
    while file.tell() < offset:
        yield file.readline()


class _Head(msgspec.Struct):
    schema: Any = None
    kind: Any = None
    trajectory: Any = None


def refused(
    line: bytes, cls: type[Any], error: Exception, path: Path, number: int | None
) -> InputError:
    """The error for a line that is not a `cls`, with a hint.

    Raises:
        InputError: it is not UTF-8.
    """
    decoded(line, path, line=number or 1)
    reason = _reason(line, cls)
    if reason is None:
        return damaged(error, path, number)
    message, where, hint = reason
    return InputError.of(message, file=str(path), line=number, path=where, hint=hint)


def damaged(error: Exception, path: Path, number: int | None, *, below: str = "") -> InputError:
    """The error for an invalid line; its path is taken from `error` and appended to `below`."""
    message, _, where = str(error).partition(" - at `$")
    at = (below + where.rstrip("`")).lstrip(".") or None
    hint = f"the {'file' if number is None else 'line'} is damaged or was edited"
    return InputError.of(message, file=str(path), line=number, path=at, hint=hint)


def refuse_schema(episode: Episode, path: Path) -> None:
    """Refuse an episode with an unsupported version.

    Raises:
        InputError: the version is not supported.
    """
    if episode.schema != 1:
        message = f"episode of schema {episode.schema}; this version of ale-rows reads 1"
        raise InputError.of(message, file=str(path), path="episode.schema")


def _kinds_of(cls: type[Any]) -> list[str]:
    """The kinds that a class reads."""
    return list(map(str, get_args(cls.__annotations__.get("kind")))) or list(KINDS)


def _reason(line: bytes, cls: type[Any]) -> tuple[str, str | None, str | None] | None:
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    wanted = _kinds_of(cls)
    if head.kind is None and head.trajectory is not None:
        return (
            "an episode of a run directory, not a row of a data set",
            None,
            "collect it first: ale data collect RUN --out raw.jsonl",
        )
    if head.kind not in wanted:
        expected = " or ".join(f"'{kind}'" for kind in wanted)
        makers = " or ".join(MADE_BY[kind] for kind in wanted)
        message = f"a row of kind {_shown(head.kind)}, expected {expected}"
        return message, "kind", f"{makers} writes such rows"
    if head.schema != SCHEMA:
        return _version(head.schema)
    return None


def _shown(kind: object) -> str:
    return "none" if kind is None else f"'{kind}'"


def _version(schema: object) -> tuple[str, str, str]:
    if isinstance(schema, int) and schema > SCHEMA:
        return (
            f"schema {schema}; this version of ale-rows reads {SCHEMA}",
            "schema",
            "it was written by a newer version: pip install --upgrade ale-rows",
        )
    return (
        f"schema {'is missing' if schema is None else schema}; there is none before {SCHEMA}",
        "schema",
        f"the first schema is {SCHEMA}: write the file again",
    )
