"""Files of the host as a tar stream for a container."""

import io
import os
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

_SPOOL = 32 << 20
_PIECE = 1 << 20


@frozen(kw_only=True)
class Ownership:
    """Whose the files are to be in the container."""

    uid: int
    gid: int


class Pack:
    """A tar stream in the making; in memory while it is small.

    Paths are absolute paths in the container. Times are kept, owners are not.

    Args:
        base: the folder in which the stream will be unpacked.
    """

    def __init__(self, base: str, owner: Ownership) -> None:
        self._base = base
        self._owner = owner
        self._file = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def __enter__(self) -> "Pack":
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()
        self._file.close()

    def _name(self, path: str) -> str:
        return posixpath.relpath(path, self._base)

    def _own(self, entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid = self._owner.uid, self._owner.gid
        entry.uname = entry.gname = ""
        return entry

    def add_bytes(self, path: str, data: bytes, mode: int, mtime: float) -> None:
        """Add a file."""
        entry = self._own(tarfile.TarInfo(self._name(path)))
        entry.size, entry.mode, entry.mtime = len(data), mode, int(mtime)
        self._tar.addfile(entry, io.BytesIO(data))

    def add_folder(self, path: str, mtime: float) -> None:
        """Add a folder by itself, of mode 0755."""
        entry = self._own(tarfile.TarInfo(self._name(path)))
        entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, int(mtime)
        self._tar.addfile(entry)

    def add_tree(self, path: str, source: Path, *, with_top: bool = True) -> None:
        """Add a host file or folder with modes, links and named pipes, but no sockets or devices.

        Args:
            with_top: whether a folder's own entry is in it, so that its mode is set.
        """
        kind = source.lstat().st_mode
        if stat.S_ISSOCK(kind) or stat.S_ISBLK(kind) or stat.S_ISCHR(kind):
            return
        entry = self._own(self._tar.gettarinfo(source, self._name(path)))
        if entry.isreg():
            with source.open("rb") as file:
                self._tar.addfile(entry, file)
        elif with_top:
            self._tar.addfile(entry)
        if entry.isdir():
            for child in sorted(source.iterdir()):
                self.add_tree(f"{path.rstrip('/')}/{child.name}", child)

    def pieces(self) -> Iterator[bytes]:
        """End the stream, and read it; again, where this is called again."""
        self._tar.close()  # idempotent, so that leaving the context does no harm
        self._file.seek(0, os.SEEK_SET)
        while piece := self._file.read(_PIECE):
            yield piece
