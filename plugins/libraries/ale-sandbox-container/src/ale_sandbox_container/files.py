"""Files of a container, through its engine: no program inside has a hand in it."""

import contextlib
import errno
import posixpath
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale.sandboxes import Allowance, within
from ale_sandbox_container.api import Engine
from ale_sandbox_container.engine import NotFoundError, Stat
from ale_sandbox_container.tarball import Ownership, Pack
from ale_sandbox_container.threads import EngineThreads
from ale_sandbox_shell.kinds import must_be_file
from ale_sandbox_shell.unpack import opened, unpack

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

    def _path(self, path: str) -> str:
        return posixpath.join(self.workdir, path)

    def _look(self, path: str) -> tuple[str, Stat]:
        """What a path leads to, links followed; where that is."""
        place = self._path(path)
        for _ in range(_LINKS):
            try:
                found = self.engine.stat(self.container, place)
            except NotFoundError:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None
            if not stat.S_ISLNK(found.mode):
                return place, found
            place = posixpath.join(posixpath.dirname(place), found.link)
        raise OSError(errno.ELOOP, "Too many levels of symbolic links", path)

    def _target(self, path: str) -> tuple[str, Stat | None]:
        """Where to write: the end of a link, or a path that is not there yet."""
        try:
            place, found = self._look(path)
        except FileNotFoundError:
            return posixpath.normpath(self._path(path)), None
        return posixpath.normpath(place), found

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        return await self.threads.call(lambda: self.read_now(path, max_bytes))

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
        await self.threads.call(lambda: self._write(path, data, mode))

    def _write(self, path: str, data: bytes, mode: int | None) -> None:
        place, found = self._target(path)
        if found is not None:
            must_be_file(found.mode, path)
        kept = 0o644 if found is None else stat.S_IMODE(found.mode)
        with self._packing(place) as pack:
            pack.add_bytes(place, data, kept if mode is None else mode, self.clock())

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in; existing folders are merged into."""
        await self.threads.call(lambda: self._upload(source.resolve(strict=True), target))

    def _upload(self, source: Path, target: str) -> None:
        place, found = self._target(target)
        if found is not None and not source.is_dir():
            must_be_file(found.mode, target)
        with self._packing(place) as pack:
            # The workspace stays its user's own, with its mode.
            pack.add_tree(place, source, with_top=place != self.workdir)

    @contextlib.contextmanager
    def _packing(self, place: str) -> Iterator[Pack]:
        """What is packed is sent: from the deepest folder that is there, with those that miss."""
        missing = []
        # The workspace itself is unpacked into: it may be all that can be written.
        folder = place if place == self.workdir else posixpath.dirname(place)
        while folder != "/" and not self._is_there(folder):
            missing.append(folder)
            folder = posixpath.dirname(folder)
        with Pack(folder, self.owner) as pack:
            for name in reversed(missing):
                pack.add_folder(name, self.clock())
            yield pack
            try:
                self.engine.put(self.container, folder, pack.pieces)
            except SandboxError as error:
                if not _is_of_the_path(error):
                    raise
                self.engine.state(self.container)  # says so where it is the container that is gone
                message = f"leads to no folder of the sandbox: {error}"
                raise PermissionError(errno.EACCES, message, folder) from error

    def _is_there(self, folder: str) -> bool:
        try:
            self.engine.stat(self.container, folder)
        except NotFoundError:
            return False
        return True

    async def download(self, source: str, target: Path) -> None:
        """Copy out. A link that is asked for by name is followed, inside the container."""
        await self.threads.call(lambda: self._download(source, target))

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


_OF_THE_PATH = ("non-directory", "not a directory", "file exists")


def _is_of_the_path(error: SandboxError) -> bool:
    """A link on the way leads nowhere, or to what is no folder; engines have no code for it."""
    said = str(error).lower()
    return isinstance(error, NotFoundError) or any(words in said for words in _OF_THE_PATH)
