"""Names that come into folders and go again, by the kernel's inotify: they leave no other trace."""

import contextlib
import ctypes
import errno
import os
import posixpath
import select
import stat
import struct
import threading
from collections.abc import Iterator, Mapping

_CAME, _WENT = 0x100 | 0x80, 0x200 | 0x40
"""Created or moved here; removed or moved away."""
_FOLDERS_ONLY, _IS_FOLDER, _LOST = 0x01000000, 0x40000000, 0x4000
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16
_MOST = 1 << 14
"""Folders that are watched: other judges of the user need some too."""
_NOT_ENOUGH = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Watch:
    """Follows the names of some folders from its making on.

    Args:
        root: descriptor, open as long, of the folder where paths begin; no link is followed.
        folders: how many levels below each are watched too; those that are not there, or are links,
            are left out.
    """

    def __init__(self, root: int, folders: Mapping[str, int]) -> None:
        self.lost = False
        """More happened at once than the kernel keeps, or there are too many folders to watch."""
        self.refused = ""
        """Why this machine follows no more: whoever has used up what it has, the agent or not."""
        self.swapped: set[str] = set()
        """Watched folders in whose place another one was put, for however long."""
        self._root = root
        self._folders: dict[int, str] = {}
        """By number of the watch."""
        self._kinds: dict[str, str] = {}
        self._here: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread: threading.Thread | None = None
        if self._queue < 0:
            self._refuse(ctypes.get_errno(), "max_user_instances")
        else:
            self._start(folders)
        self.folders = frozenset(self._folders.values())
        """The watched folders."""

    def _start(self, folders: Mapping[str, int]) -> None:
        try:
            self._ends, self._end = os.pipe()
        except OSError as error:
            os.close(self._queue)
            self._refuse(error.errno or errno.EMFILE)
            return
        for path, levels in folders.items():
            self._add_all(path, levels)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _refuse(self, error: int, setting: str = "") -> None:
        hint = f"; raise fs.inotify.{setting}" if setting else ""
        self.refused = f"{os.strerror(error)}{hint}"

    def passed(self) -> Iterator[tuple[str, str]]:
        """The paths that came since and are gone, and whether each was a ``folder``, a ``file`` or
        a link, or ``unknown``. Blocks."""
        with self._lock:
            if self._thread is not None:
                self._take()
            gone = sorted(path for path, here in self._here.items() if not here)
            return iter([(path, self._kinds[path]) for path in gone if path in self._kinds])

    def close(self) -> None:
        """End it."""
        if self._thread is None:
            return
        os.write(self._end, b"x")
        self._thread.join()
        for descriptor in (self._queue, self._ends, self._end):
            os.close(descriptor)

    def _add_all(self, path: str, levels: int) -> None:
        """Watch a folder and those below; only one is open at a time, however many there are."""
        waiting = [(path, levels)]
        while waiting:
            path, levels = waiting.pop()
            try:
                folder = folder_below(self._root, path)
            except OSError as error:
                if error.errno in _NOT_ENOUGH:
                    self._refuse(error.errno)
                continue
            if len(self._folders) >= _MOST:
                os.close(folder)
                self.lost = True
                return
            try:
                names = _folders_in(folder) if levels else []
            finally:
                self._add(path, folder)
            waiting += [(posixpath.join(path, name), levels - 1) for name in names]

    def _add(self, path: str, folder: int) -> None:
        """Watch an open folder, and close it."""
        place = f"/proc/self/fd/{folder}".encode()
        number = self._libc.inotify_add_watch(self._queue, place, _CAME | _WENT | _FOLDERS_ONLY)
        os.close(folder)
        if number < 0:
            self._refuse(ctypes.get_errno(), "max_user_watches")
        else:
            self._folders.setdefault(number, path)

    def _follow(self) -> None:
        while True:
            ready, _, _ = select.select([self._queue, self._ends], [], [])
            if self._ends in ready:
                return
            with self._lock:
                self._take()

    def _take(self) -> None:
        while True:
            try:
                data = os.read(self._queue, _BUFFER)
            except BlockingIOError:
                return
            while data:
                number, mask, _, length = _EVENT.unpack_from(data)
                name = os.fsdecode(data[_EVENT.size : _EVENT.size + length].rstrip(b"\0"))
                data = data[_EVENT.size + length :]
                self._note(number, mask, name)

    def _note(self, number: int, mask: int, name: str) -> None:
        if mask & _LOST:
            self.lost = True
        if number not in self._folders or not mask & (_CAME | _WENT):
            return
        folder = self._folders[number]
        path = posixpath.join(folder, name)
        self._here[path] = bool(mask & _CAME)
        if not mask & _CAME:
            return
        if path in self.folders:
            self.swapped.add(path)
        if path in self._kinds:  # which of them was looked at nobody can tell
            self._kinds[path] = "unknown"
        else:
            self._kinds[path] = "folder" if mask & _IS_FOLDER else self._kind(folder, name)

    def _kind(self, folder: str, name: str) -> str:
        """A link could lead to a folder, but none of a package has a dot in its name."""
        if "." in name:
            return "file"
        try:
            opened = folder_below(self._root, folder)
            try:
                mode = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
            finally:
                os.close(opened)
        except OSError:
            return "unknown"
        return "file" if stat.S_ISREG(mode) else "unknown"


def _folders_in(folder: int) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    return []


def folder_below(root: int, path: str) -> int:
    """A descriptor of a folder below an open one, reached through no link.

    Raises:
        OSError: there is none.
    """
    folder = os.dup(root)
    for part in (part for part in path.split("/") if part):
        try:
            inner = os.open(part, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder
