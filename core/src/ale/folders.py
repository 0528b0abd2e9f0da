"""Folders that an agent made, removed and copied, however deep they are and whatever is in them.

Nothing here recurses, keeps more than a few files open or goes through a path: names are looked up
in open folders and links are never followed. For Linux. Standard library only: small processes
import it, such as the fork server of ``bubblewrap``.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Copy", "Leftover", "copy_data", "must_be_file", "open_folder", "remove"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSES = 5
"""Over one folder: a process that has escaped may still write to it."""
_CHUNK = 1 << 20
_LONGEST = 200
"""Characters of a path in an error."""


class Leftover(NamedTuple):
    """An entry that could not be removed."""

    path: str
    why: str


class _Node(NamedTuple):
    """A name, and what it is in: a path of any length, which is put together for errors only."""

    name: str
    above: "_Node | None"

    def path(self) -> str:
        """The names from the top on; the last ones where there are many."""
        parts, length, node = [self.name], len(self.name), self.above
        while node is not None and length < _LONGEST:
            parts.append(node.name)
            length += len(node.name) + 1
            node = node.above
        return "/".join(reversed(parts if node is None else [*parts, "..."]))


def must_be_file(mode: int, path: str) -> None:
    """Check that it is a regular file, by its `os.stat_result.st_mode`.

    Raises:
        IsADirectoryError: it is a folder.
        PermissionError: it is something else, such as a named pipe.
    """
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise PermissionError(errno.EACCES, "not a regular file", path)


def open_folder(name: str, parent: int | None = None) -> int:
    """Open a folder by its name, also one that its owner may not read: it then gets mode 0700.

    Raises:
        OSError: it is a link or no folder, or belongs to another user.
    """
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _unlock(name, parent)
        return os.open(name, _FOLDER, dir_fd=parent)


def _unlock(name: str, parent: int | None) -> None:
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - the folder itself
    finally:
        os.close(handle)


def remove(name: str, parent: int | None = None) -> list[Leftover]:
    """Remove a file, link or folder with all that is in it; what could not be removed.

    Folders inside are first moved to the top, so that none is ever deeper than two levels. What
    can't be moved because something is mounted there is left alone.
    """
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
            return []
        top = open_folder(name, parent)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [Leftover(name, str(error.strerror))]
    try:
        left = _Removal(top).all(_Node(name, None))
    finally:
        os.close(top)
    if not left:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            left.append(Leftover(name, str(error.strerror)))
    return left


class _Removal:
    """Empties one open folder."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._token = secrets.token_hex(8)
        self._moved = 0
        self._waiting: list[tuple[str, _Node]] = []
        """Folders that were moved to the top: their names there, and where they were."""
        self._left: list[Leftover] = []

    def all(self, node: _Node) -> list[Leftover]:
        self._empty(self._top, node)
        while self._waiting:
            name, node = self._waiting.pop()
            try:
                folder = open_folder(name, self._top)
            except OSError as error:
                self._left.append(Leftover(node.path(), str(error.strerror)))
                continue
            try:
                self._empty(folder, node)
            finally:
                os.close(folder)
            with contextlib.suppress(OSError):  # what is left in it has been noted
                os.rmdir(name, dir_fd=self._top)
        return self._left

    def _empty(self, folder: int, node: _Node) -> None:
        if os.fstat(folder).st_mode & 0o700 != 0o700:
            with contextlib.suppress(OSError):  # another user's; removing says so
                os.fchmod(folder, 0o700)
        for _ in range(_PASSES):
            failed: list[Leftover] = []
            removed = 0
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(self._token):
                        continue
                    try:
                        self._take(entry, folder, node)
                        removed += 1
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        failed.append(Leftover(_Node(entry.name, node).path(), str(error.strerror)))
            if not removed or not failed:
                break
        self._left += failed

    def _take(self, entry: "os.DirEntry[str]", folder: int, node: _Node) -> None:
        """Remove a file, or move a folder to the top."""
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
            return
        with contextlib.suppress(OSError):
            os.rmdir(entry.name, dir_fd=folder)
            return
        self._moved += 1
        name = f"{self._token}{self._moved}"
        try:
            os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:
            _unlock(entry.name, folder)
            os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=self._top)
        self._waiting.append((name, _Node(entry.name, node)))


class Copy:
    """Copies folders. Derive from it for what differs.

    Entries that vanish meanwhile are left out.
    """

    def folder(self, source: int, target: int, name: str) -> None:
        """Make the folder `name` in `target` where there is none; `source` is what it shall hold.

        Raises:
            FileExistsError: there is something else, or a link.
        """
        try:
            os.mkdir(name, 0o700, dir_fd=target)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=target, follow_symlinks=False).st_mode):
                message = "a link or a file; a folder is not copied through it"
                raise FileExistsError(errno.EEXIST, message, name) from None

    def file(
        self, source: int, target: int, name: str, about: os.stat_result, new: str | None = None
    ) -> None:
        """Copy an entry that is no folder, in place of one that is there. Not sockets or devices.

        Args:
            new: what the copy is called; None: as the original.
        """
        kind, new = about.st_mode, name if new is None else new
        if stat.S_ISLNK(kind) or stat.S_ISREG(kind) or stat.S_ISFIFO(kind):
            with contextlib.suppress(FileNotFoundError):
                # Nothing is written through a link, or over a file that a process has open.
                os.unlink(new, dir_fd=target)
        if stat.S_ISLNK(kind):
            os.symlink(self.link(os.readlink(name, dir_fd=source)), new, dir_fd=target)
            times = (about.st_atime_ns, about.st_mtime_ns)
            os.utime(new, ns=times, dir_fd=target, follow_symlinks=False)
        elif stat.S_ISREG(kind):
            self._regular((source, name), (target, new), about)
        elif stat.S_ISFIFO(kind):
            os.mkfifo(new, stat.S_IMODE(kind), dir_fd=target)

    def link(self, text: str) -> str:
        """The text of a copied link."""
        return text

    def _regular(
        self, source: tuple[int, str], target: tuple[int, str], about: os.stat_result
    ) -> None:
        old = _open_file(*source, about)
        try:
            new = os.open(target[1], _NEW, 0o600, dir_fd=target[0])
            try:
                copy_data(old, new)
                self.attributes(old, new, about)
            finally:
                os.close(new)
        finally:
            os.close(old)

    def attributes(self, source: int, target: int, about: os.stat_result) -> None:
        """Give a copy what its original has, when all is in it: mode and times."""
        os.fchmod(target, stat.S_IMODE(about.st_mode))
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))

    def all(self, source: int, target: int, about: os.stat_result) -> None:
        """Copy what an open folder holds into another one, and its attributes.

        Args:
            about: what the folder was like before it was opened.
        """
        walk = _Walk(source, target, about)
        try:
            while walk.open:
                name = walk.next()
                if name is None:
                    walk.leave(self.attributes)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    about = os.stat(name, dir_fd=walk.source, follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        walk.enter(name, about, self.folder)
                    else:
                        self.file(walk.source, walk.target, name, about)
        finally:
            walk.close()


class _Walk:
    """Two folders that are walked through side by side.

    The way back is ``..``, and it is checked that it leads where it came from.
    """

    def __init__(self, source: int, target: int, about: os.stat_result) -> None:
        self.source, self.target = os.dup(source), os.dup(target)
        self.open = True
        self._names = [iter(os.listdir(source))]
        self._about = [about]
        self._above: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def next(self) -> str | None:
        """The next name here; None at the end."""
        return next(self._names[-1], None)

    def enter(
        self, name: str, about: os.stat_result, make: Callable[[int, int, str], None]
    ) -> None:
        """Go into a folder."""
        source = open_folder(name, self.source)
        try:
            make(source, self.target, name)
            target = os.open(name, _FOLDER, dir_fd=self.target)
        except BaseException:
            os.close(source)
            raise
        self._above.append((_identity(self.source), _identity(self.target)))
        os.close(self.source)
        os.close(self.target)
        self.source, self.target = source, target
        self._about.append(about)
        self._names.append(iter(os.listdir(source)))  # noqa: PTH208

    def leave(self, finish: Callable[[int, int, os.stat_result], None]) -> None:
        """Go back to the folder above, if this is not the first."""
        about = self._about.pop()
        self._names.pop()
        above: list[int] = []
        try:
            if self._above:
                for folder, expected in zip(
                    (self.source, self.target), self._above.pop(), strict=True
                ):
                    above.append(_above(folder, expected))
            finish(self.source, self.target, about)
            if os.fstat(self.source).st_mode != about.st_mode:
                os.fchmod(self.source, stat.S_IMODE(about.st_mode))  # it was unlocked
        except BaseException:
            for folder in above:
                os.close(folder)
            raise
        self.open = bool(above)
        if above:
            self.close()
            self.source, self.target = above

    def close(self) -> None:
        """Close both."""
        os.close(self.source)
        os.close(self.target)


def _identity(folder: int) -> tuple[int, int]:
    about = os.fstat(folder)
    return about.st_dev, about.st_ino


def _above(folder: int, expected: tuple[int, int]) -> int:
    above = os.open("..", _FOLDER, dir_fd=folder)
    if _identity(above) != expected:
        os.close(above)
        raise OSError(errno.ESTALE, "a folder was moved while it was copied")
    return above


def _open_file(folder: int, name: str, about: os.stat_result) -> int:
    """Open a file for reading, also one that its owner may not read."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FileNotFoundError(errno.ENOENT, "replaced while it was copied", name)
        path = f"/proc/self/fd/{handle}"
        os.chmod(path, 0o600)  # noqa: PTH101 - the file itself
        try:
            return os.open(path, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(path, stat.S_IMODE(about.st_mode))  # noqa: PTH101
    finally:
        os.close(handle)


def copy_data(source: int, target: int) -> None:
    """Copy the bytes of an open file into an empty one; holes stay holes.

    What is added to it meanwhile is left out.
    """
    size = os.fstat(source).st_size
    if size == 0:  # files of the kernel say so, too
        _copy_range(source, target, None)
        return
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
            end = min(os.lseek(source, at, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            raise
        os.lseek(source, at, os.SEEK_SET)
        os.lseek(target, at, os.SEEK_SET)
        _copy_range(source, target, end - at)
        at = end
    os.ftruncate(target, size)


def _copy_range(source: int, target: int, count: int | None) -> None:
    while count is None or count > 0:
        data = os.read(source, _CHUNK if count is None else min(count, _CHUNK))
        if not data:
            return
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
        count = None if count is None else count - len(data)
