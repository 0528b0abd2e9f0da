"""A file of JSON lines, of which each has its number, the hash of the line before, and its own.

The hash of a line is the SHA-256 of its bytes before ``,"sha256":``.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.errors import InputError, StoreError
from ale.files import store_errors

NAME = "audit.jsonl"
START = "0" * 64
"""What stands in the first line for the hash of the line before."""
REPAIRED = "repaired"
_ENDING = re.compile(rb',"sha256":"([0-9a-f]{64})"}\n\Z')
_PIECE = 65536


@frozen
class Entry:
    """One line."""

    seq: int
    """Its number; the first is 1."""
    event: str
    previous: str
    sha256: str
    facts: dict[str, Any]
    """All that stands in it."""


def line_of(
    seq: int, event: str, at: float, facts: dict[str, Any], previous: str
) -> tuple[bytes, str]:
    """The line of an event, and its hash; `at` in seconds since the epoch."""
    body = {"seq": seq, "at": at, "event": event, **facts, "previous": previous}
    head = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()[:-1]
    sha256 = hashlib.sha256(head).hexdigest()
    return b'%s,"sha256":"%s"}\n' % (head, sha256.encode()), sha256


def entry_of(line: bytes) -> Entry | None:
    """What stands in a line, or None: it is not as it was written."""
    ending = _ENDING.search(line)
    if ending is None:
        return None
    head, sha256 = line[: ending.start()], ending[1].decode()
    if hashlib.sha256(head).hexdigest() != sha256:
        return None
    try:
        facts = json.loads(head + b"}")
        return Entry(facts["seq"], facts["event"], facts["previous"], sha256, facts)
    except (ValueError, KeyError, TypeError):
        return None


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one perhaps without its end."""
    with path.open("rb") as file:
        yield from file


class Chain:
    """Appends to a file. Each line is written by one system call, before `append` returns.

    A process that is killed leaves at worst an incomplete last line. It is completed here, where
    only its end is missing, or removed, and a line says so.
    """

    def __init__(self, path: Path, *, fsync: bool, at: float) -> None:
        """Open a file, or make it.

        Args:
            at: time of the line that says what was repaired.

        Raises:
            InputError: its last whole line is damaged: nothing can follow it.
            StoreError: it can't be written.
        """
        self.path = path
        self._fsync = fsync
        self._seq, self._previous = 0, START
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with store_errors(path):
            self._descriptor = os.open(path, flags, 0o600)
        try:
            repaired = self._continue()
        except BaseException:
            self.close()
            raise
        if repaired is not None:
            self.append(REPAIRED, at, **repaired)

    def _continue(self) -> dict[str, Any] | None:
        """Find where the chain ends; what was repaired."""
        last, rest = self._ending()
        if last:
            self._follow(entry_of(last))
        if not rest:
            return None
        entry = entry_of(rest + b"\n")
        if entry is not None and (entry.seq, entry.previous) == (self._seq + 1, self._previous):
            self._write(b"\n")
            self._follow(entry)
            return {"completed_line": entry.seq, "removed_bytes": 0}
        os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - len(rest))
        return {"removed_bytes": len(rest), "removed_sha256": hashlib.sha256(rest).hexdigest()}

    def _follow(self, entry: Entry | None) -> None:
        if entry is None:
            message = "the last whole line is damaged, so nothing can follow it"
            hint = f"ale audit verify {self.path.parent}"
            raise InputError.of(message, file=str(self.path), hint=hint)
        self._seq, self._previous = entry.seq, entry.sha256

    def _ending(self) -> tuple[bytes, bytes]:
        """The last whole line, and what follows it."""
        at = os.fstat(self._descriptor).st_size
        tail = b""
        while at > 0 and tail.count(b"\n") < 2:
            size = min(_PIECE, at)
            at -= size
            tail = os.pread(self._descriptor, size, at) + tail
        *lines, rest = tail.split(b"\n")
        return (lines[-1] + b"\n" if lines else b""), rest

    def append(self, event: str, at: float, **facts: Any) -> None:
        """Write an event.

        Raises:
            StoreError: it can't be written (a full disk); the file ends as it did before.
        """
        line, sha256 = line_of(self._seq + 1, event, at, facts, self._previous)
        size = os.fstat(self._descriptor).st_size
        try:
            self._write(line)
        except OSError as error:
            os.ftruncate(self._descriptor, size)
            raise StoreError(f"{self.path} can't be written: {error.strerror}") from error
        self._seq, self._previous = self._seq + 1, sha256

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]
        if self._fsync:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
