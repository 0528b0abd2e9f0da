"""Files of a sandbox.

The service's own calls carry the bytes, in parts; the script in the sandbox looks at paths, joins
the parts, packs and unpacks folders.
"""

import asyncio
import contextlib
import errno
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from attrs import frozen

from ale.sandboxes import DOWNLOAD_BYTES, DOWNLOAD_ENTRIES, Allowance, within
from ale_sandboxing.remote.client import PART
from ale_sandboxing.remote.jobs import INLINE, Jobs, Place, new_token
from ale_sandboxing.shell.unpack import unpack

_LARGEST_PACK = DOWNLOAD_BYTES + DOWNLOAD_ENTRIES * 2048
"""Bytes of an archive that may be within what one download allows, headers and padding included."""


@frozen(kw_only=True)
class Files:
    """Reads and writes files of one sandbox."""

    jobs: Jobs
    place: Place

    def _path(self, path: str) -> str:
        if "\0" in path:
            raise FileNotFoundError(errno.ENOENT, "a path has no NUL byte", path)
        return posixpath.join(self.place.workdir, path)

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        head, content = await self.jobs.ask("look", self._path(path))
        _check_kind(head[0], path)
        size = int(head[1])
        if not 0 < size <= INLINE:
            # Files of the kernel say that they are empty.
            wanted = PART if size == 0 else size
            wanted = min(wanted, within(size, max_bytes, path))
            content = await self.jobs.fetch(self._path(path), wanted, whole=wanted >= size)
        return content if max_bytes is None else content[:max_bytes]

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole."""
        pieces = (data[at : at + PART] for at in range(0, max(len(data), 1), PART))
        async with self._stored(pieces) as scratch:
            mode_word = "" if mode is None else f"{mode:o}"
            head, _ = await self.jobs.ask("place", scratch, self._path(path), mode_word)
        _check_kind(head[0], path)

    @contextlib.asynccontextmanager
    async def _stored(self, pieces: Iterator[bytes]) -> AsyncIterator[str]:
        """Bytes, stored in parts until the block ends; what the parts' names begin with."""
        token, number = new_token(), 0
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                await self.jobs.store(f"{token}.{number:06}", piece)
                number += 1
            yield self.jobs.path(token)
        finally:
            self.jobs.forget(token)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in; existing folders are merged into."""
        place = posixpath.normpath(self._path(target))
        source, is_folder = await asyncio.to_thread(_followed, source)
        if not is_folder or target.endswith(("/", "/.")):
            head, _ = await self.jobs.ask("look", place)
            if head[0] == "folder" and not is_folder:
                _check_kind("folder", target)
            if head[0] in ("file", "special") and target.endswith(("/", "/.")):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", target)
        base, name = posixpath.split(place)
        if place == self.place.workdir:
            # Its own entry is left out: the workspace stays its user's, with its mode.
            base, name = place, "."
        with tempfile.TemporaryFile() as packed:
            await asyncio.to_thread(self._pack, source, name, packed)
            packed.seek(0)
            async with self._stored(_pieces(packed)) as scratch:
                head, _ = await self.jobs.ask("unpack", scratch, base)
        if head[0] != "unpacked":
            raise PermissionError(errno.EACCES, "leads to no folder of the sandbox", target)

    def _pack(self, source: Path, name: str, packed: IO[bytes]) -> None:
        def own(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
            entry.uid, entry.gid, entry.uname, entry.gname = self.place.uid, self.place.gid, "", ""
            return entry if entry.isfile() or entry.isdir() or entry.issym() else None

        # GNU's format: what else is in use does not know long or odd names in the other.
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for child, inner in _tops(source, name):
                tar.add(child, inner, filter=own)

    async def download(self, source: str, target: Path) -> None:
        """Copy out. A link that is asked for by name is followed, inside the sandbox."""
        token = new_token()
        scratch = self.jobs.path(token)
        head, _ = await self.jobs.ask("pack", self._path(source), scratch, str(DOWNLOAD_BYTES))
        if head[0] == "large" or (head[0] == "packed" and int(head[1]) > _LARGEST_PACK):
            self.jobs.forget(token)
            raise OSError(errno.EFBIG, f"more than {DOWNLOAD_BYTES >> 30} GiB", source)
        _check_kind(head[0], source)
        with tempfile.TemporaryFile() as packed:
            async for part in self.jobs.parts(scratch, int(head[1])):
                await asyncio.to_thread(packed.write, part)
            self.jobs.forget(token)
            packed.seek(0)
            await asyncio.to_thread(unpack, _pieces(packed), target, Allowance(source))


def _followed(source: Path) -> tuple[Path, bool]:
    """The end of a link, and whether that is a folder."""
    end = source.resolve(strict=True)
    return end, end.is_dir()


def _tops(source: Path, name: str) -> list[tuple[Path, str]]:
    """What to pack, and under which name; of a folder without a name, what is in it."""
    if name != ".":
        return [(source, name)]
    return [(child, child.name) for child in sorted(source.iterdir())]


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PART):
        yield piece


def _check_kind(kind: str, path: str) -> None:
    """Raise for what is no file."""
    if kind == "missing":
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    if kind == "folder":
        raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
    if kind not in ("file", "placed", "packed"):
        raise PermissionError(errno.EACCES, "no regular file, or no permission", path)
