"""For authors of sandboxes whose workspace is a folder of this machine.

`FolderFiles` moves files in and out, and `remove` ends a workspace, whatever its commands have left
there: links, named pipes, folders of any depth or mode, files that are all holes. For Linux.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ale import folders
from ale.errors import SandboxError
from ale.folders import must_be_file
from ale.sandboxes import Allowance, within

__all__ = ["Area", "FolderFiles", "copy_workspace", "remove"]

P = ParamSpec("P")
T = TypeVar("T")
_Guard = Callable[[Path], Path]
_LEADS_OUT = "the path leads out of the sandbox"
_INLINE_BYTES = 1 << 18
"""Files up to this size are written without a thread: it would cost more than they do."""
_NAMED = 3
"""Leftovers that an error names."""


class Area:
    """Folders that `read`, `write`, `upload` and `download` may touch, and nothing outside them.

    Args:
        workdir: the workspace, from which paths begin.
        others: more folders that absolute paths and links may lead to.
    """

    def __init__(self, workdir: Path, *others: Path) -> None:
        self._workdir = workdir
        self._roots = tuple(os.path.realpath(root) for root in (workdir, *others))

    def _holds(self, path: str) -> bool:
        return any(path == root or path.startswith(root + "/") for root in self._roots)

    def resolve(self, path: str | Path) -> Path:
        """The real path, links followed.

        Raises:
            PermissionError: it leads out.
            OSError: it ends with a slash, and is no folder.
        """
        real = os.path.realpath(self._workdir / path)
        if not self._holds(real):
            raise PermissionError(errno.EACCES, _LEADS_OUT, str(path))
        if str(path).endswith(("/", "/.")):  # which pathlib drops
            os.stat(real)  # noqa: PTH116 - a missing file, or a loop of links
            if not os.path.isdir(real):  # noqa: PTH112
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return Path(real)

    def place(self, path: str | Path) -> Path:
        """Where to put a file: as `resolve`, but a link in the last place is not followed."""
        joined = self._workdir / path
        name = joined.name
        if name == ".." or joined == self._workdir:
            return self.resolve(joined)
        return self.resolve(joined.parent) / name

    def _open(self, path: str, flags: int, mode: int = 0o666) -> int:
        real = self.resolve(path)
        # NONBLOCK: a named pipe must not hang the host.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(real, flags, mode)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a named pipe without a reader
                raise PermissionError(errno.EACCES, "not a regular file", path) from error
            if error.errno == errno.ELOOP:
                raise PermissionError(errno.EACCES, "swapped for a link", path) from error
            error.filename = path
            raise
        try:
            self._check(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, descriptor: int, path: str) -> None:
        """Check what was really opened: a parent folder may have been swapped for a link."""
        must_be_file(os.fstat(descriptor).st_mode, path)
        if not self._holds(str(Path(f"/proc/self/fd/{descriptor}").readlink())):
            raise PermissionError(errno.EACCES, _LEADS_OUT, path)

    def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        with os.fdopen(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read(within(os.fstat(file.fileno()).st_size, max_bytes, path))

    def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole. A new one gets 0644 unless `mode` says other."""
        try:
            self.resolve(path).parent.mkdir(parents=True, exist_ok=True)
        except RecursionError:  # about 1,000 levels
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path) from None
        descriptor = self._open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(0)
            file.write(data)
            if mode is not None:
                os.fchmod(descriptor, mode)

    def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in; existing folders are merged."""
        real = self.resolve(target)
        if not source.is_dir() and real.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        real.parent.mkdir(parents=True, exist_ok=True)
        _put(source.resolve(strict=True), real, self.place)

    def download(self, source: str, target: Path) -> None:
        """Copy out. A link that is asked for by name is followed inside the sandbox only."""
        real = self.resolve(source)
        if not real.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(real, target, _Download(Allowance(source)))


class FolderFiles:
    """Moves files in threads, as the `ale.sandboxes.Files` of a sandbox.

    Args:
        area: whose files.
    """

    def __init__(self, area: Area) -> None:
        self._area = area
        self._running: set[asyncio.Future[Any]] = set()

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    async def ended(self) -> None:
        """Wait until nothing is moved any more: before the folders are removed."""
        if self._running:
            await asyncio.wait(self._running)

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes."""
        return await self._run(self._area.read, path, max_bytes)

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole, making its folders."""
        if len(data) <= _INLINE_BYTES:
            self._area.write(path, data, mode)
        else:
            await self._run(self._area.write, path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        await self._run(self._area.upload, source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        await self._run(self._area.download, source, target)


def copy_workspace(source: Path, target: Path, moved: tuple[Path, Path]) -> None:
    """Copy a folder of a sandbox into an empty one, with modes and times; not sockets or devices.

    Args:
        moved: links to absolute paths below the first folder are rewritten to the second.
    """
    _copy(source, target, _Relocating(moved))


def _copy(source: Path, target: Path, how: folders.Copy) -> None:
    with _opened(source.parent) as inside, _opened(target.parent) as outside:
        about = os.stat(source.name, dir_fd=inside, follow_symlinks=False)
        if not stat.S_ISDIR(about.st_mode):
            how.file(inside, outside, source.name, about, target.name)
            return
        with _opened(source.name, inside) as folder:
            how.folder(folder, outside, target.name)
            with _opened(target.name, outside) as copied:
                how.all(folder, copied, about)


@contextlib.contextmanager
def _opened(folder: str | Path, parent: int | None = None) -> Iterator[int]:
    descriptor = folders.open_folder(str(folder), parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Relocating(folders.Copy):
    def __init__(self, moved: tuple[Path, Path]) -> None:
        self._moved = moved

    def link(self, text: str) -> str:
        if not Path(text).is_relative_to(self._moved[0]):
            return text
        return str(self._moved[1] / Path(text).relative_to(self._moved[0]))


class _Download(folders.Copy):
    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance

    def folder(self, source: int, target: int, name: str) -> None:
        self._allowance.take()
        super().folder(source, target, name)

    def file(
        self, source: int, target: int, name: str, about: os.stat_result, new: str | None = None
    ) -> None:
        self._allowance.take(about.st_size if stat.S_ISREG(about.st_mode) else 0)
        super().file(source, target, name, about, new)


def _put(source: Path, target: Path, guard: _Guard) -> None:
    """Copy a file, link or folder of the host in, with modes and times; not sockets or devices.

    Args:
        guard: called with every path that is about to be written; raises where it leads out.
    """
    place = guard(target)
    kind = source.lstat().st_mode
    if stat.S_ISLNK(kind):
        _remove_file(place)
        # Not Path.readlink, which would tidy the text of the link.
        place.symlink_to(os.readlink(source))  # noqa: PTH115
    elif stat.S_ISDIR(kind):
        if place.is_symlink():
            place = guard(place.resolve())
        place.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            # It may be removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                _put(entry, place / entry.name, guard)
        shutil.copystat(source, place)  # last: the folder may be read-only
    elif stat.S_ISREG(kind):
        _remove_file(place)
        with source.open("rb") as old, place.open("xb") as new:
            folders.copy_data(old.fileno(), new.fileno())
        shutil.copystat(source, place)
    elif stat.S_ISFIFO(kind):
        _remove_file(place)
        os.mkfifo(place, stat.S_IMODE(kind))


def _remove_file(place: Path) -> None:
    """Nothing is written through a link, or over a file that a process has open."""
    if place.is_symlink() or place.is_file():
        place.unlink()


def remove(tree: Path) -> None:
    """Remove a tree, read-only folders included; a missing one is fine.

    Raises:
        SandboxError: something in it could not be removed (immutable, another user's, a mount); all
            the rest is gone.
    """
    try:
        parent = os.open(tree.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        left = folders.remove(tree.name, parent)
    finally:
        os.close(parent)
    if left:
        named = ", ".join(f"{one.path} ({one.why})" for one in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        raise SandboxError(f"{tree} could not be removed whole: {named}{more}")
