"""Command pipes: a host folder of named pipes through which a container is controlled.

The container sees the folder as ``/.ale``: read-only, and without a way to list it. Each pipe has a
name of 128 random bits that only the host and the sealed supervisor know, and is removed as soon
as both ends are open. So a program inside can't open a pipe that was not handed to it.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from ale_sandbox_shell.output import Pump
from ale_sandbox_shell.session import File, Outlet

INSIDE = "/.ale"
SEALED_SHELL = f"{INSIDE}/sh"
_FOLDER_MODE = 0o311
"""To enter and, for the owner, to make entries; to list it nobody, the container's root included,
which has no capability to override that."""


def new_name() -> str:
    """A name that can't be guessed."""
    return secrets.token_hex(16)


class PipeFolder:
    """One sandbox's folder of pipes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._host = str(folder)

    def make(self) -> None:
        """Make it; the folder around it is closed to other users."""
        self.folder.mkdir(mode=0o700)
        self.folder.chmod(_FOLDER_MODE)

    def inside(self, name: str) -> bytes:
        """The path of an entry as the container sees it."""
        return f"{INSIDE}/{name}".encode()

    def pipe(self, name: str, mode: int) -> str:
        """Make a named pipe; its path on the host."""
        path = f"{self._host}/{name}"
        os.mkfifo(path, 0o600)
        os.chmod(path, mode)  # noqa: PTH101 - whatever the umask
        return path

    def writer(self, name: str) -> int:
        """Make a pipe that the container reads; the host's end.

        Open for reading too, so that neither side waits for the other to open it; the container
        finds its end when this process closes it, or dies.
        """
        return os.open(self.pipe(name, 0o644), os.O_RDWR | os.O_NONBLOCK)

    def reader(self, name: str) -> int:
        """Make a pipe that the container writes; the host's end."""
        return os.open(self.pipe(name, 0o622), os.O_RDONLY | os.O_NONBLOCK)

    def forget(self, *names: str) -> None:
        """Remove names. Whoever has opened them keeps them open."""
        for name in names:
            try:
                os.unlink(f"{self._host}/{name}")  # noqa: PTH108
            except FileNotFoundError:
                continue

    def outlet(self, limit: int) -> Outlet:
        """A pipe for the output of one command."""
        name = new_name()
        pump = Pump(self.reader(name), limit)
        return Outlet(pump=pump, path=self.inside(name), release=lambda: self.forget(name))

    def file(self, data: bytes, name: str | None = None) -> File:
        """A file that the container may read, where it knows the name."""
        name = new_name() if name is None else name
        path = f"{self._host}/{name}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o444)
        return File(path=self.inside(name), release=lambda: self.forget(name))

    def link(self, source: Path, name: str) -> None:
        """Show a host file under this name."""
        os.link(source, f"{self._host}/{name}")

    def remove(self) -> None:
        """Remove it with all that is in it. May be called again."""
        remove(self.folder)


def remove(folder: Path) -> None:
    """Remove a pipe folder, or a folder of them. Another process may be removing it, too."""
    with contextlib.suppress(FileNotFoundError):
        folder.chmod(0o700)
        for place in folder.glob("*/"):
            with contextlib.suppress(FileNotFoundError):
                place.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=False, onerror=_fine_when_gone)


def _fine_when_gone(
    _: Callable[..., object], __: str, about: tuple[type[BaseException], BaseException, object]
) -> None:
    if not isinstance(about[1], FileNotFoundError):
        raise about[1]
