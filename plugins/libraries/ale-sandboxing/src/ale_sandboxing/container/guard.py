"""Sees who opens the files of one folder of a container, from outside, before the file is open.

By the kernel's fanotify: it holds a process at its call until this one has looked at it, so that
the look is never too late. Needs root on the engine's machine.
"""

import ctypes
import errno
import os
import posixpath
import select
import struct
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field

from ale.errors import UnsupportedError
from ale_sandboxing.container.sealed import SEALED

_CONTENT, _CLOEXEC = 0x4, 0x1
_ADD = 0x1
_OPENED, _ON_CHILD = 0x10000, 0x08000000
_ALLOW = 0x1
_EVENT = struct.Struct("IBBHQii")
_ANSWER = struct.Struct("iI")
_HERE = -100
_BUFFER = 1 << 14
_WORDS = 4
"""Words of a command line that may name the file that runs."""
_DEEP = 200


@define
class Guard:
    """The processes that were seen.

    Args:
        folder: path in the container.
        pid: of the container's first process.
        carried: files of the agent's, in the container.
    """

    folder: str
    pid: int
    carried: Collection[str]
    suspects: dict[str, None] = field(factory=dict, init=False)
    """Command lines of processes that opened a file and run a file of the agent's, or whose parent
    has left them, in order."""
    _watched: tuple[int, int] | None = field(default=None, init=False)
    """Device and number of the folder at the beginning."""
    _known: set[int] = field(factory=set, init=False)
    """Files that others have opened there."""

    def foreign(self, name: str) -> list[str]:
        """Who else than the check itself may have written a file; empty if nobody did."""
        if self._identity() != self._watched:
            return ["a process that has put another folder there"]
        try:
            about = (self._place / name).lstat()
        except OSError:
            return []
        found = list(self.suspects)
        if about.st_ino not in self._known and not found:
            found.append("a process that has moved it there")
        if about.st_nlink > 1:
            found.append("a process that has given it a second name")
        return found

    @property
    def _place(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.folder}")

    def _identity(self) -> tuple[int, int] | None:
        """Device and number of the folder; None where a link or nothing is in its place."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            folder = os.open(f"/proc/{self.pid}/root", flags)
        except OSError:
            return None
        for part in Path(self.folder).parts[1:]:
            try:
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
            except OSError:
                return None
            finally:
                os.close(folder)
            folder = inner
        try:
            about = os.fstat(folder)
        finally:
            os.close(folder)
        return about.st_dev, about.st_ino

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile.

        Raises:
            UnsupportedError: the kernel does not let this process.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        queue = libc.fanotify_init(_CONTENT | _CLOEXEC, os.O_RDONLY | os.O_CLOEXEC)
        if queue < 0:
            raise _unsupported()
        ends, end = os.pipe()
        thread = threading.Thread(target=self._watch, args=(queue, ends), daemon=True)
        try:
            mask = ctypes.c_uint64(_OPENED | _ON_CHILD)
            if libc.fanotify_mark(queue, _ADD, mask, _HERE, os.fsencode(self._place)) < 0:
                raise _unsupported()
            self._watched = self._identity()
            thread.start()
            try:
                yield
            finally:
                os.write(end, b"x")
                thread.join()
        finally:
            for descriptor in (queue, ends, end):
                os.close(descriptor)

    def _watch(self, queue: int, ends: int) -> None:
        while True:
            ready, _, _ = select.select([queue, ends], [], [])
            if queue not in ready:
                return
            with suppress(OSError):
                self._take(queue, os.read(queue, _BUFFER))

    def _take(self, queue: int, data: bytes) -> None:
        while data:
            length, _, _, _, _, opened, pid = _EVENT.unpack_from(data)
            data = data[length:]
            try:
                self._look(pid, opened)
            finally:
                os.write(queue, _ANSWER.pack(opened, _ALLOW))
                os.close(opened)

    def _look(self, pid: int, opened: int) -> None:
        if not self._is_inside(pid):
            return  # the engine, which reads for us
        if (suspect := self._suspect(pid)) is None:
            self._known.add(os.fstat(opened).st_ino)
        elif posixpath.basename(os.readlink(f"/proc/self/fd/{opened}")).startswith("reward"):  # noqa: PTH115
            self.suspects[suspect] = None

    def _is_inside(self, pid: int) -> bool:
        own, its = (_link(f"/proc/{number}/ns/pid") for number in (self.pid, pid))
        return its is not None and its == own

    def _suspect(self, pid: int) -> str | None:
        """The command line of a process that is not the check's own; None if it is."""
        said = _words(pid)
        for _ in range(_DEEP):
            if pid == self.pid:
                break  # its parent has ended, and process 1 has taken it over
            if _link(f"/proc/{pid}/exe") == SEALED:
                return None  # the worker that runs the check
            if self._runs_carried(pid):
                break
            pid = _parent(pid)
        return " ".join(said)[:200]

    def _runs_carried(self, pid: int) -> bool:
        folder = _link(f"/proc/{pid}/cwd") or "/"
        words = [_link(f"/proc/{pid}/exe") or "", *_words(pid)[:_WORDS]]
        paths = (posixpath.normpath(posixpath.join(folder, word)) for word in words if word)
        return any(path in self.carried for path in paths)


def _unsupported() -> UnsupportedError:
    why = os.strerror(ctypes.get_errno() or errno.EPERM)
    return UnsupportedError(f"the kernel shows nobody who opens a file: {why}")


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text, as the kernel has it
    except OSError:
        return None


def _words(pid: int) -> list[str]:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0") if word]


def _parent(pid: int) -> int:
    """0 where there is none."""
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        )
    except (OSError, ValueError, IndexError):
        return 0
