"""Append-only files of JSON lines that survive ``kill -9``."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ale._store.codec import cannot_read, encode, unreadable
from ale._store.redact import Redactor
from ale.errors import InputError, StoreError
from ale.files import open_file, restrict, store_errors

T = TypeVar("T")
OnDamage = Callable[[InputError], object]
"""Gets the error of a damaged line, which is left out then."""
SCHEMA = 1
"""Version of the records, and of the layout of a run directory."""


class Appender:
    """Writes whole lines at the end of one file.

    A line is written by one system call, so a killed process leaves at worst an incomplete last
    line, which the next start removes. A power loss may lose lines: each would need an fsync.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self.path = path
        self._redactor = redactor
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with store_errors(path):
            _remove_incomplete_line(path)
            is_new = not path.exists()
            self._descriptor = os.open(path, flags, 0o660)
            if is_new:
                restrict(path)
        self._size = os.fstat(self._descriptor).st_size

    def append(self, record: object) -> int:
        """Write one record; the offset at which its line starts.

        Raises:
            StoreError: the disk is full or the file is gone; the file ends as it did before.
        """
        data = self._redactor.scrub_json(encode(record)) + b"\n"
        start, left = self._size, memoryview(data)
        try:
            with store_errors(self.path):
                while left:
                    left = left[os.write(self._descriptor, left) :]
        except StoreError:
            os.truncate(self._descriptor, start)
            raise
        self._size = start + len(data)
        return start

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _remove_incomplete_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)


class Lines(Generic[T]):
    """Reads a file of JSON lines, one record at a time."""

    def __init__(self, path: Path, cls: type[T], on_damage: OnDamage | None = None) -> None:
        """Read a file that may not be there yet.

        Args:
            path: the file.
            cls: class of a record.
            on_damage: gets the error of each damaged line, which iterating leaves out then;
                without it, the error is raised.
        """
        self.path = path
        self._decoder = msgspec.json.Decoder(cls)
        self._on_damage = on_damage

    def __iter__(self) -> Iterator[T]:
        """Every record in order. Raises as `with_offsets`."""
        for _, record in self.with_offsets():
            yield record

    def with_offsets(self, start: int = 0) -> Iterator[tuple[int, T]]:
        """Every record and the offset of its line. An incomplete last line is left out.

        Args:
            start: offset of the first line to read.

        Raises:
            InputError: the file can't be read, or with file and line, a record is damaged.
        """
        if not self.path.exists():
            return
        offset = start
        try:
            file = open_file(self.path)
        except OSError as error:
            raise cannot_read(self.path, error) from error
        with file:
            file.seek(start)
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    record = self._decode(line, 0 if start else number)
                except InputError as error:
                    if self._on_damage is None:
                        raise
                    self._on_damage(error)
                else:
                    yield offset, record
                offset += len(line)

    def at(self, offset: int) -> T:
        """The record whose line starts at `offset`."""
        with open_file(self.path) as file:
            file.seek(offset)
            return self._decode(file.readline(), 0)

    def _decode(self, line: bytes, number: int) -> T:
        try:
            return self._checked(self._decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable(self.path, number or self._number(line), error) from None

    def _checked(self, record: T) -> T:
        schema = getattr(record, "schema", SCHEMA)  # parts of a record may have none
        if schema != SCHEMA:
            message = f"schema {schema}; this version of ale reads {SCHEMA} - at `$.schema`"
            raise msgspec.ValidationError(message)
        return record

    def _number(self, line: bytes) -> int:
        with open_file(self.path) as file:
            return next((i for i, other in enumerate(file, 1) if other == line), 0)


class EventLines(Lines[dict[str, Any]]):
    """Reads an event log: each entry has ``event``, ``at`` (seconds since the epoch) and more."""

    def __init__(self, path: Path, on_damage: OnDamage | None = None) -> None:
        super().__init__(path, dict[str, Any], on_damage)

    def _checked(self, record: dict[str, Any]) -> dict[str, Any]:
        of_step = record.get("event") in ("step_finished", "evaluation_finished")
        msgspec.convert(record, _StepEvent if of_step else _Event)
        return record


class _Event(msgspec.Struct):
    event: str
    at: float


class _StepEvent(_Event):
    step: int
    metrics: dict[str, float | None] | None = None
