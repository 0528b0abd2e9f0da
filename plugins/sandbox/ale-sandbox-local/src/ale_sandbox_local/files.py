"""Files of a sandbox: no path or symbolic link leads out of it."""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from ale_sandbox_shell.kinds import must_be_file

Guard = Callable[[Path], Path]
LEADS_OUT = "the path leads out of the sandbox"


class Area:
    """The folders that `read`, `write`, `upload` and `download` may touch."""

    def __init__(self, workdir: Path, *others: Path) -> None:
        self._workdir = workdir
        self._roots = tuple(str(root) for root in (workdir, *others))

    def _holds(self, path: str) -> bool:
        return any(path == root or path.startswith(root + "/") for root in self._roots)

    def resolve(self, path: str | Path) -> Path:
        """The real path, links followed.

        Raises:
            PermissionError: it leads out.
        """
        real = os.path.realpath(self._workdir / path)
        if not self._holds(real):
            raise PermissionError(errno.EACCES, LEADS_OUT, str(path))
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
            raise PermissionError(errno.EACCES, LEADS_OUT, path)

    def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        with os.fdopen(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read(-1 if max_bytes is None else max_bytes)

    def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole. A new one gets 0644 unless `mode` says other."""
        self.resolve(path).parent.mkdir(parents=True, exist_ok=True)
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
        copy(source.resolve(strict=True), real, guard=self.place)

    def download(self, source: str, target: Path) -> None:
        """Copy out. A link that is asked for by name is followed inside the sandbox only."""
        real = self.resolve(source)
        if not real.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(real, target)


def copy(
    source: Path,
    target: Path,
    *,
    guard: Guard | None = None,
    moved: tuple[Path, Path] | None = None,
) -> None:
    """Copy a file, link or folder with modes and times; sockets and devices are left out.

    Args:
        guard: called with every path that is about to be written; raises where it leads out.
        moved: links to absolute paths below the first folder are rewritten to the second.
    """
    place = target if guard is None else guard(target)
    kind = source.lstat().st_mode
    if stat.S_ISLNK(kind):
        _remove_file(place)
        # Not Path.readlink, which would tidy the text of the link.
        place.symlink_to(_relocate(os.readlink(source), moved))  # noqa: PTH115
    elif stat.S_ISDIR(kind):
        _copy_folder(source, place, guard, moved)
    elif stat.S_ISREG(kind):
        _remove_file(place)
        shutil.copy2(source, place, follow_symlinks=False)
    elif stat.S_ISFIFO(kind):
        _remove_file(place)
        os.mkfifo(place, stat.S_IMODE(kind))


def _copy_folder(
    source: Path, place: Path, guard: Guard | None, moved: tuple[Path, Path] | None
) -> None:
    if place.is_symlink():
        if guard is None:
            output = "a link; a folder is not copied through it"
            raise FileExistsError(errno.EEXIST, output, str(place))
        place = guard(place.resolve())
    place.mkdir(exist_ok=True)
    for entry in sorted(source.iterdir()):
        # A running process may remove an entry meanwhile.
        with contextlib.suppress(FileNotFoundError):
            copy(entry, place / entry.name, guard=guard, moved=moved)
    shutil.copystat(source, place)  # last: the folder may be read-only


def _remove_file(place: Path) -> None:
    """Nothing is written through a link, or over a file that a process has open."""
    if place.is_symlink() or place.is_file():
        place.unlink()


def _relocate(link: str, moved: tuple[Path, Path] | None) -> str:
    if moved is None or not Path(link).is_relative_to(moved[0]):
        return link
    return str(moved[1] / Path(link).relative_to(moved[0]))
