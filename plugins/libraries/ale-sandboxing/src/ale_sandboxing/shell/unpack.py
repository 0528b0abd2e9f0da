"""A tar stream from a sandbox, unpacked on the host. Nothing in it is trusted.

Every folder on the way to an entry is opened by its descriptor and never through a link, so that
no entry lands outside the target, whatever names and links the stream holds.
"""

import contextlib
import os
import tarfile
from collections.abc import Iterable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, cast

from ale.errors import SandboxError
from ale.sandboxes import Allowance

_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Stream(RawIOBase):
    """Pieces as a file to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


@contextlib.contextmanager
def opened(pieces: Iterator[bytes]) -> Iterator[tarfile.TarFile]:
    """A tar stream to read once, from front to back.

    Raises:
        SandboxError: it is not one.
    """
    try:
        with tarfile.open(fileobj=cast(IO[bytes], _Stream(pieces)), mode="r|") as tar:
            yield tar
    except tarfile.TarError as error:
        raise SandboxError(f"the archive is broken: {error}") from error


def unpack(pieces: Iterator[bytes], target: Path, allowance: Allowance) -> None:
    """Unpack the one file or folder of a stream as `target`.

    Existing folders are merged into. Modes are kept but for set-user-id and its like; owners are
    not; devices are left out, and blocks of zeros become holes.

    Raises:
        OSError: there is more in it than `allowance` lets through.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened(pieces) as tar, _Tree(target) as tree:
        for entry in tar:
            allowance.take(entry.size if entry.isreg() else 0)
            tree.add(tar, entry)
            vars(tar)["members"].clear()  # or it would remember each of them


class _Tree:
    """The host's side of it."""

    def __init__(self, target: Path) -> None:
        self._base = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = target.name
        self._modes: list[tuple[tuple[str, ...], int]] = []

    def __enter__(self) -> "_Tree":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # Last, and from the inside out: a folder may forbid what is put into it.
            for parts, mode in reversed(self._modes):
                with self._folder(parts) as descriptor:
                    os.fchmod(descriptor, mode)
        finally:
            os.close(self._base)

    def _parts(self, name: str) -> tuple[str, ...]:
        """The entry's place below the base; its first part is the target's own name."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise SandboxError(f"the archive holds a path that leads out: {name!r}")
        return (self._name, *parts[1:])

    @contextlib.contextmanager
    def _folder(self, parts: Iterable[str]) -> Iterator[int]:
        """A folder, by its descriptor."""
        descriptor = os.dup(self._base)
        try:
            for part in parts:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        except NotADirectoryError as error:
            raise SandboxError(f"{'/'.join(parts)} is no folder, or a link to one") from error
        finally:
            os.close(descriptor)

    def add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        """Make one entry."""
        parts = self._parts(entry.name)
        mode = entry.mode & 0o1777
        with self._folder(parts[:-1]) as folder:
            if entry.isdir():
                _make_folder(parts[-1], folder)
                self._modes.append((parts, mode))
                return
            _clear(parts[-1], folder)
            if entry.isreg():
                _write(tar, entry, parts[-1], folder, mode)
            elif entry.issym():
                os.symlink(entry.linkname, parts[-1], dir_fd=folder)
            elif entry.isfifo():
                os.mkfifo(parts[-1], mode, dir_fd=folder)
            elif entry.islnk():
                first = self._parts(entry.linkname)
                with self._folder(first[:-1]) as other:
                    os.link(
                        first[-1],
                        parts[-1],
                        src_dir_fd=other,
                        dst_dir_fd=folder,
                        follow_symlinks=False,
                    )


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        # Open to its owner while it is filled; its mode comes at the end.
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
        try:
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)


def _clear(name: str, folder: int) -> None:
    """So that nothing is written through a link, or over a file that somebody has open."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, name: str, folder: int, mode: int) -> None:
    source = tar.extractfile(entry)
    assert source is not None
    descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        while piece := source.read(_PIECE):
            if piece.count(0) == len(piece):
                file.seek(len(piece), os.SEEK_CUR)
            else:
                file.write(piece)
        file.truncate(entry.size)
        os.fchmod(descriptor, mode)
        os.utime(descriptor, (entry.mtime, entry.mtime))
