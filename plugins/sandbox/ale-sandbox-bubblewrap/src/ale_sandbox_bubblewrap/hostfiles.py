"""The host's side of `upload` and `download`: one entry at a time, never through a link."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.errors import SandboxError
from ale.folders import copy_data

KINDS = (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO)
"""What is copied; sockets and devices are left out."""
_PLAIN = 0o777
"""Modes of what comes out: a set-user-id program made inside must not work outside."""


@frozen
class Entry:
    """A file, folder, link or named pipe of the host that goes in."""

    path: Path
    kind: int
    mode: int
    size: int
    time: int
    """Of its last change, nanoseconds."""
    link: str

    @classmethod
    def at(cls, path: Path) -> "Entry":
        """The entry at a path."""
        about = path.lstat()
        kind = stat.S_IFMT(about.st_mode)
        # Not Path.readlink, which would tidy the text of the link.
        link = os.readlink(path) if kind == stat.S_IFLNK else ""  # noqa: PTH115
        return cls(path, kind, about.st_mode, about.st_size, about.st_mtime_ns, link)

    @classmethod
    def behind(cls, path: Path) -> "Entry":
        """The entry that a path leads to, links followed. Raises FileNotFoundError."""
        return cls.at(path.resolve(strict=True))

    def inner(self) -> "list[Entry]":
        """What a folder holds, by name."""
        return [Entry.at(path) for path in sorted(self.path.iterdir())]

    def fill(self, descriptor: int) -> None:
        """Copy a file into an open one, and close that."""
        with self.path.open("rb") as file, os.fdopen(descriptor, "wb"):
            copy_data(file.fileno(), descriptor)
            os.fchmod(descriptor, stat.S_IMODE(self.mode))
            os.utime(descriptor, ns=(self.time, self.time))


def save(descriptor: int, target: Path, about: Mapping[str, Any]) -> None:
    """Copy an open file to a path, and close it."""
    with os.fdopen(descriptor, "rb") as file:
        _clear(target)
        with target.open("xb") as copy:
            copy_data(file.fileno(), copy.fileno())
            os.fchmod(copy.fileno(), about["mode"] & _PLAIN)
            os.utime(copy.fileno(), ns=(about["time"], about["time"]))


def save_special(target: Path, about: Mapping[str, Any]) -> None:
    """Make a link, which leads wherever it did, or a named pipe."""
    if stat.S_ISLNK(about["mode"]):
        _clear(target)
        target.symlink_to(about["link"])
    elif stat.S_ISFIFO(about["mode"]):
        _clear(target)
        os.mkfifo(target, about["mode"] & _PLAIN)


def make_folder(target: Path) -> None:
    """Make a folder, where there is none.

    Raises:
        SandboxError: it is a link, perhaps from an earlier download.
    """
    if target.is_symlink():
        raise SandboxError(f"{target} is a link; a folder is not copied through it")
    target.mkdir(exist_ok=True)


def finish_folder(target: Path, about: Mapping[str, Any]) -> None:
    """Give a folder its mode and time, when all is in it: it may be read-only."""
    target.chmod(about["mode"] & _PLAIN)
    os.utime(target, ns=(about["time"], about["time"]))


def _clear(target: Path) -> None:
    if target.is_symlink() or not target.is_dir():
        target.unlink(missing_ok=True)
