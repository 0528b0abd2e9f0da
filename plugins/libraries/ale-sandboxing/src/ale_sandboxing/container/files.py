"""Files of a container, through its engine: no program inside has a hand in it.

But for files on mounts that the engine does not see: see `ale_sandboxing.container.mounted`.
"""

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from ale.errors import SandboxError
from ale.folders import must_be_file
from ale.sandboxes import Allowance, within
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.engine import NotFoundError, Stat
from ale_sandboxing.container.mounted import Mounted, OnMountError
from ale_sandboxing.container.tarball import Ownership, Pack
from ale_sandboxing.container.threads import EngineThreads
from ale_sandboxing.shell.unpack import opened, unpack

T = TypeVar("T")
_LINKS = 40
"""As many as Linux follows."""


@frozen(kw_only=True)
class Files:
    """Reads and writes a container's files.

    A path is resolved by the engine inside the container: what it calls ``/`` is the container's,
    and links and ``..`` lead nowhere else.
    """

    engine: Engine
    container: str
    workdir: str
    owner: Ownership
    clock: Callable[[], float]
    threads: EngineThreads

    mounts: frozenset[str] = frozenset()
    """Mount points below which the engine sees other files than commands."""
    mounted: Mounted | None = None
    """Moves files there; None where there are no mounts."""

    def _path(self, path: str) -> str:
        return posixpath.join(self.workdir, path)

    def _stat(self, place: str, path: str) -> Stat:
        """What the engine says of a place that `path` leads to.

        Raises:
            OSError: `path` is wrong.
            OnMountError: commands see something else there.
        """
        normal = posixpath.normpath(place)
        if any(normal == mount or normal.startswith(f"{mount}/") for mount in self.mounts):
            raise OnMountError(normal)
        with self._asking(path):
            return self.engine.stat(self.container, place)

    @contextlib.contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Turn what the engine says of a mistake in a path into its `OSError`."""
        try:
            yield
        except SandboxError as error:
            mistake = _mistake(error)
            if mistake is None:
                raise
            self.engine.state(self.container)  # says so where it is the container that is gone
            raise OSError(mistake, os.strerror(mistake), path) from error

    def _look(self, path: str) -> tuple[str, Stat]:
        """What a path leads to, links followed; where that is."""
        place, folder = self._path(path), path.endswith(("/", "/."))
        try:
            place, found = self._follow(posixpath.normpath(place) if folder else place, path)
        except FileNotFoundError:
            self._check_parent(place, path)
            raise
        if folder and not stat.S_ISDIR(found.mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return place, found

    def _follow(self, place: str, path: str) -> tuple[str, Stat]:
        """The end of the links at a place."""
        for _ in range(_LINKS):
            found = self._stat(place, path)
            if not stat.S_ISLNK(found.mode):
                return place, found
            place = posixpath.join(posixpath.dirname(place), found.link)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _check_parent(self, place: str, path: str) -> None:
        """Look at the folders on the way to what is missing: one may be a link to a mount.

        Raises:
            OSError, OnMountError: as `_stat`.
        """
        if not self.mounts:
            return
        *folders, name = place.strip("/").split("/")
        real = "/"
        for folder in folders:
            try:
                real, found = self._follow(posixpath.join(real, folder), path)
            except FileNotFoundError:
                return
            except OnMountError as mount:
                rest = folders[folders.index(folder) + 1 :]
                raise OnMountError(posixpath.join(mount.place, *rest, name)) from None
            if not stat.S_ISDIR(found.mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def _target(self, path: str) -> tuple[str, Stat | None]:
        """Where to write: the end of a link, or a path that is not there yet."""
        try:
            place, found = self._look(path)
        except FileNotFoundError:
            return posixpath.normpath(self._path(path)), None
        return posixpath.normpath(place), found

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        return await self._do(
            lambda: self.read_now(path, max_bytes), lambda inside, at: inside.read(at, max_bytes)
        )

    def read_now(self, path: str, max_bytes: int | None = None) -> bytes:
        """Likewise, blocking."""
        place, found = self._look(path)
        must_be_file(found.mode, path)
        with self.engine.get(self.container, place) as pieces, opened(pieces) as tar:
            entry = tar.next()
            content = None if entry is None else tar.extractfile(entry)
            if entry is None or content is None:
                raise PermissionError(errno.EACCES, "not a regular file", path)
            return content.read(within(entry.size, max_bytes, path))

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole. A new one gets 0644 unless `mode` says other."""
        await self._do(
            lambda: self._write(path, data, mode), lambda inside, at: inside.write(at, data, mode)
        )

    def _write(self, path: str, data: bytes, mode: int | None) -> None:
        place, found = self._target(path)
        if found is not None:
            must_be_file(found.mode, path)
        elif path.endswith("/"):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        kept = 0o644 if found is None else stat.S_IMODE(found.mode)
        with self._packing(place, path) as pack:
            pack.add_bytes(place, data, kept if mode is None else mode, self.clock())

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in; existing folders are merged into."""
        real = await self.threads.call(lambda: source.resolve(strict=True))
        await self._do(
            lambda: self._upload(real, target), lambda inside, at: inside.upload(real, at)
        )

    def _upload(self, source: Path, target: str) -> None:
        place, found = self._target(target)
        if found is not None and not source.is_dir():
            must_be_file(found.mode, target)
        with self._packing(place, target) as pack:
            # The workspace stays its user's own, with its mode.
            pack.add_tree(place, source, with_top=place != self.workdir)

    @contextlib.contextmanager
    def _packing(self, place: str, path: str) -> Iterator[Pack]:
        """What is packed is sent: from the deepest folder that is there, with those that miss."""
        missing = []
        # The workspace itself is unpacked into: it may be all that can be written.
        folder = place if place == self.workdir else posixpath.dirname(place)
        while folder != "/" and not self._is_there(folder, path):
            missing.append(folder)
            folder = posixpath.dirname(folder)
        with Pack(folder, self.owner) as pack:
            for name in reversed(missing):
                pack.add_folder(name, self.clock())
            yield pack
            with self._asking(path):
                self.engine.put(self.container, folder, pack.pieces)

    def _is_there(self, folder: str, path: str) -> bool:
        try:
            self._stat(folder, path)
        except FileNotFoundError:
            return False
        return True

    async def download(self, source: str, target: Path) -> None:
        """Copy out. A link that is asked for by name is followed, inside the container."""
        await self._do(
            lambda: self._download(source, target), lambda inside, at: inside.download(at, target)
        )

    async def _do(self, work: Callable[[], T], inside: Callable[[Mounted, str], Awaitable[T]]) -> T:
        """Do it through the engine; on a mount that it does not see, by commands."""
        try:
            return await self.threads.call(work)
        except OnMountError as found:
            if self.mounted is None:
                raise SandboxError(f"{found.place} is on a mount that the engine hides") from None
            place = found.place
        return await inside(self.mounted, place)

    def _download(self, source: str, target: Path) -> None:
        place, _ = self._look(source)
        with self.engine.get(self.container, place) as pieces:
            unpack(pieces, target, Allowance(source))

    def own_workdir(self) -> None:
        """Make the workspace the user's own. Not where it is a volume, or the image's."""
        parent = posixpath.dirname(self.workdir)
        with Pack(parent, self.owner) as pack:
            pack.add_folder(self.workdir, self.clock())
            self.engine.put(self.container, parent, pack.pieces)


_MISTAKES = {
    "too many": errno.ELOOP,  # links, or levels of symbolic links
    "file name too long": errno.ENAMETOOLONG,
    "cannot overwrite directory": errno.EISDIR,
    "not a directory": errno.ENOTDIR,
    "non-directory": errno.ENOTDIR,
    "file exists": errno.ENOTDIR,
    "read-only file system": errno.EROFS,
    "permission denied": errno.EACCES,
}
"""Engines have no codes for these."""


def _mistake(error: SandboxError) -> int | None:
    """What is wrong with the path that the engine was asked for; None: it is not the path."""
    if isinstance(error, NotFoundError):
        return errno.ENOENT
    said = str(error).lower()
    return next((code for words, code in _MISTAKES.items() if words in said), None)
