"""Open sessions on disk, so that a proxy that is killed loses none: a file for each session."""

import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from attrs import frozen

from ale.errors import InputError, StoreError
from ale.files import restrict
from ale.recording import masked
from ale.types import Message, Task, Turn
from ale_proxy.assignment import Assignment, Result
from ale_proxy.conversation import Turns

FOLDER = "open_sessions"


@frozen(kw_only=True)
class Feedback:
    """What was said of a session."""

    score: float | None = None
    """In [0, 1]."""
    text: str = ""
    author: str = ""
    turn: int | None = None
    """The answer that it is about, from 0 in the order of the answers; None: the whole session."""


class Broken(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What came of an answer that broke off."""

    reason: str
    turns: int
    """Answers of the session that were recorded before."""
    message: Message


class Entry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What has happened in a session. The first entry of a file says which session it is."""

    session: str = ""
    started: str = ""
    """UTC, ISO 8601."""
    task: Task | None = None
    rollout: int = 0
    number: int = 0
    """Of the turn: one that is written again, with observations, replaces the first."""
    turn: Turn | None = None
    api: str = ""
    response: str | None = None
    """Id of the answer by which a later request may continue it."""
    facts: list[dict[str, Any]] = []
    """Of the middleware."""
    heads: list[tuple[tuple[Message, ...], tuple[Message, ...]]] = []
    """First messages as they came, and as the middleware has rewritten them."""
    after: int = -1
    """Number of the turn that this one continues; below 0: the one before it."""
    sampling: dict[str, Any] | None = None
    """What the request says of how to sample, where no request before has said it."""
    sampled: int = 0
    """Which of these the turn has."""
    left_out: str | None = None
    broken: Broken | None = None
    of: str = ""
    """Of a session that nobody has named: whose it is."""
    feedback: Feedback | None = None
    assigned: str | None = None
    """Of an assignment: for which worker, or empty."""
    taken: str = ""
    messages: tuple[Message, ...] = ()
    result: Result | None = None


class Journal:
    """The folder of a run directory with the sessions that are open."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._folder.mkdir(exist_ok=True)
        restrict(self._folder)

    def read(self) -> Iterator[list[Entry]]:
        """The entries of each session; a line that a kill has cut off is removed.

        Raises:
            InputError: a file has something else in it.
        """
        for path in sorted(self._folder.glob("*.jsonl")):
            *lines, rest = path.read_bytes().split(b"\n")
            if rest:  # else the next entry would be written behind it
                os.truncate(path, path.stat().st_size - len(rest))
            try:
                yield [msgspec.json.decode(line, type=Entry) for line in lines]
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise InputError.of(str(error), file=str(path)) from None

    def write(self, session: str, *entries: Entry, secrets: Collection[str] = ()) -> None:
        """Append entries, all of them or none.

        Args:
            secrets: masked, as in an episode.

        Raises:
            StoreError: the disk is full.
        """
        lines = map(msgspec.json.encode, entries)
        data = b"".join(masked(line, secrets) + b"\n" for line in lines)
        path = self._path(session)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
            try:
                _write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"{path} can't be written: {error.strerror}") from error

    def remove(self, session: str) -> None:
        """A session has ended, and its episode is stored."""
        Path(self._path(session)).unlink(missing_ok=True)

    def _path(self, session: str) -> str:
        # Names of sessions differ in case, and may have dots and colons.
        return f"{self._folder}/{hashlib.sha256(session.encode()).hexdigest()[:24]}.jsonl"


def _write(descriptor: int, data: bytes) -> None:
    size, left = os.fstat(descriptor).st_size, memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def started(entries: list[Entry]) -> str:
    """When a session began: UTC, ISO 8601; empty where nothing of it was written."""
    return entries[0].started if entries else ""


def since_taken(entries: list[Entry]) -> list[Entry]:
    """The entries since a worker last took the task; all of one that nobody took."""
    taken = [n for n, entry in enumerate(entries) if entry.taken]
    return entries[taken[-1] :] if taken else entries


def turns_of(entries: list[Entry]) -> Turns:
    """The turns of a session."""
    made = Turns()
    for each in entries:
        if each.turn is not None:
            after = each.number - 1 if each.after < 0 else each.after
            made.restore(each.number, each.turn, after, each.response)
    return made


def assignment_of(entries: list[Entry], now: float) -> Assignment | None:
    """What has become of an assignment; None of a session that is none."""
    first = next((each for each in entries if each.assigned is not None), None)
    if first is None or first.assigned is None:
        return None
    made = Assignment(worker=first.assigned)
    for entry in entries:
        if entry.taken:
            made.taken_by, made.taken_at, made.messages = entry.taken, now, entry.messages
        made.result = made.result or entry.result
    return made
