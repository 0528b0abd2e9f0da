"""Files of an agent's in a folder in memory of a judge, and which of them were used there."""

import errno
import os
import stat
from collections.abc import Collection, Iterator

from ale import folders
from ale.judging.watch import folder_below
from ale.types import CarriedChange

_DEEP = 1000


class InMemory:
    """Files that were copied to a folder in memory, which belongs to no layer. Blocks.

    Args:
        path: of the folder in the sandbox.
        folder: its descriptor, which `close` closes.
        without: paths that are removed, as in `ale.protocols.OpensJudge.open_judge`.

    Raises:
        OSError: its folders are too deep.
    """

    def __init__(self, path: str, folder: int, without: Collection[str] = ()) -> None:
        self._path, self._folder = path, folder
        for place, name, parent, _ in self._walk():
            if not {name, place}.isdisjoint(without):
                folders.remove(name, parent)
        self._links: dict[str, str] = {}
        for place, name, parent, about in self._walk():
            if stat.S_ISLNK(about.st_mode):
                self._links[place] = os.readlink(name, dir_fd=parent)
            if not stat.S_ISDIR(about.st_mode):
                times = (0, about.st_mtime_ns)
                os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)
        self._times = self._now()

    @property
    def paths(self) -> Collection[str]:
        """Paths of the files and links."""
        return self._times.keys()

    def used(self) -> list[CarriedChange]:
        """The files and links that were read, run, followed, changed or removed since."""
        try:
            now = self._now()
        except OSError:  # so deep by now that nobody can tell
            now = {}
        used = [path for path, times in self._times.items() if now.get(path) != times]
        return [
            CarriedChange(path=path, kind="added", link=self._links.get(path, "")) for path in used
        ]

    def close(self) -> None:
        """Close the folder."""
        os.close(self._folder)

    def _now(self) -> dict[str, tuple[int, int, int]]:
        return {
            place: (about.st_ino, about.st_atime_ns, about.st_ctime_ns)
            for place, _, _, about in self._walk()
            if not stat.S_ISDIR(about.st_mode)
        }

    def _walk(self) -> Iterator[tuple[str, str, int, os.stat_result]]:
        """Each entry: path in the sandbox, name, and the folder that it is in."""
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            if inner.count("/") > _DEEP:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), self._path)
            try:
                folder = folder_below(self._folder, inner)
            except FileNotFoundError:  # removed meanwhile
                continue
            try:
                for name in os.listdir(folder):  # noqa: PTH208 - a descriptor
                    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    yield f"{self._path}{inner}/{name}", name, folder, about
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(f"{inner}/{name}")
            finally:
                os.close(folder)
