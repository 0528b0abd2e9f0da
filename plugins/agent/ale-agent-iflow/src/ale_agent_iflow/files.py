"""The file tools, by the sandbox's read and write. A path's failure is a result, not an error."""

import asyncio
import errno
import os
from collections.abc import Awaitable
from typing import TypeVar

from ale.agents import from_home
from ale.protocols import Sandbox
from ale_agent_iflow.result import Result, cut_middle

T = TypeVar("T")

MAX_FILE_BYTES = 8 << 20
"""The largest file that is read or edited: the host should not hold more for a model."""
MAX_PLACES = 1000
"""Occurrences of a passage that are counted before giving up."""


class FileProblemError(Exception):
    """The request can't be carried out; the message is for the model."""

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        self.timed_out = timed_out
        super().__init__(text)


class Files:
    """A sandbox's files.

    Args:
        max_output_bytes: of a file's text that is shown; longer text is cut in the middle.
    """

    def __init__(self, sandbox: Sandbox, *, max_output_bytes: int) -> None:
        self._sandbox = sandbox
        self._max_output_bytes = max_output_bytes

    async def read(
        self,
        path: str,
        start_line: int | None = None,
        end_line: int | None = None,
        *,
        timeout_s: float | None,
    ) -> Result:
        """The text of a file, or of a range of its lines (1-based, both ends included)."""
        try:
            data = await self._read(path, timeout_s)
            text = data.decode("utf-8", "backslashreplace")
            if start_line is not None or end_line is not None:
                text = _range(text, start_line or 1, end_line)
        except FileProblemError as problem:
            return _failed(problem)
        shown, cut = cut_middle(text, self._max_output_bytes)
        return Result(content=shown if shown else "[the file is empty]", truncated=cut)

    async def write(self, path: str, content: str, *, timeout_s: float | None) -> Result:
        """Write a file whole."""
        data = content.encode()
        try:
            await self._reach(path, self._write(path, data), timeout_s)
        except FileProblemError as problem:
            return _failed(problem)
        return Result(content=f"[wrote {len(data)} bytes to {path}]")

    async def edit(
        self, path: str, old_text: str, new_text: str, *, timeout_s: float | None
    ) -> Result:
        """Replace the one occurrence of `old_text`. On bytes: what is not UTF-8 stays as it is."""
        old, new = old_text.encode(), new_text.encode()
        try:
            data = await self._read(path, timeout_s)
            at = _only_place(data, old, new, path)
            changed = data[:at] + new + data[at + len(old) :]
            await self._reach(path, self._write(path, changed), timeout_s)
        except FileProblemError as problem:
            return _failed(problem)
        return Result(content=f"[replaced 1 passage in {path}, line {_line(data, at)}]")

    async def _write(self, path: str, data: bytes) -> None:
        await self._sandbox.write(await from_home(self._sandbox, path), data)

    async def _read(self, path: str, timeout_s: float | None) -> bytes:
        async def reading() -> bytes:
            place = await from_home(self._sandbox, path)
            return await self._sandbox.read(place, max_bytes=MAX_FILE_BYTES + 1)

        data = await self._reach(path, reading(), timeout_s)
        if len(data) > MAX_FILE_BYTES:
            raise FileProblemError(
                f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; use the shell (sed -n, head)"
            )
        return data

    async def _reach(self, path: str, work: Awaitable[T], timeout_s: float | None) -> T:
        timer = asyncio.timeout(timeout_s)
        try:
            async with timer:
                return await work
        except (TimeoutError, ConnectionError):
            if not timer.expired():
                raise  # nothing about the path: a failure of the backend
            text = f"{path}: timed out after {timeout_s:.4g} s"
            raise FileProblemError(text, timed_out=True) from None
        except OSError as error:
            raise FileProblemError(f"{path}: {_words(error)}") from None


def _words(error: OSError) -> str:
    """The system's message, also where a backend raised the bare class."""
    bare = {
        FileNotFoundError: errno.ENOENT,
        IsADirectoryError: errno.EISDIR,
        NotADirectoryError: errno.ENOTDIR,
        PermissionError: errno.EACCES,
    }
    number = bare.get(type(error))
    return error.strerror or (os.strerror(number) if number else type(error).__name__)


def _failed(problem: FileProblemError) -> Result:
    return Result(content=f"[error: {problem}]", error=str(problem), timed_out=problem.timed_out)


def _range(text: str, start: int, end: int | None) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    n = len(lines)
    if start > n:
        raise FileProblemError(f"the file has {n} lines; line {start} is past its end")
    last = n if end is None else min(end, n)
    if last < start:
        raise FileProblemError(f"end_line {end} is before start_line {start}")
    return f"[lines {start}-{last} of {n}]\n" + "\n".join(lines[start - 1 : last])


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def _only_place(data: bytes, old: bytes, new: bytes, path: str) -> int:
    if not old:
        raise FileProblemError("old_text is empty; to write a whole file, use write_file")
    if old == new:
        raise FileProblemError("old_text and new_text are equal; nothing would change")
    places = _places(data, old)
    if not places:
        raise FileProblemError(f"old_text is not found in {path}{_why_not(data, old)}")
    if len(places) > 1:
        number = len(places) if len(places) < MAX_PLACES else f"at least {MAX_PLACES}"
        lines = ", ".join(str(_line(data, at)) for at in places[:5])
        raise FileProblemError(
            f"old_text is found {number} times in {path}, at lines {lines}"
            f"{', ...' if len(places) > 5 else ''}; include more of the surrounding text"
        )
    return places[0]


def _places(data: bytes, old: bytes) -> list[int]:
    """Every start of `old`, overlapping ones too: ``aa`` is found twice in ``aaa``."""
    places: list[int] = []
    at = data.find(old)
    while at >= 0 and len(places) < MAX_PLACES:
        places.append(at)
        at = data.find(old, at + 1)
    return places


def _why_not(data: bytes, old: bytes) -> str:
    if old in data.replace(b"\r\n", b"\n"):
        return ": its lines end in \\r\\n there"
    if old.strip() and old.strip() in data:
        line = _line(data, data.find(old.strip()))
        return f": with other whitespace around it, it is in line {line}"
    return "; read the file again and copy the passage exactly"
