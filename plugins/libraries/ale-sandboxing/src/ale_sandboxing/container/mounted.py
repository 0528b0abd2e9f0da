"""Files on mounts that the engine's archive calls do not see: tmpfs, and those of the kernel.

An engine reads and writes below such a mount, where no command would find the file. So these files
are moved by commands, as the sandbox's user.
"""

import asyncio
import errno
import os
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from ale.sandboxes import READ_BYTES, Allowance
from ale.types import ExecResult
from ale_sandboxing.container.tarball import Ownership, Pack
from ale_sandboxing.shell.unpack import unpack

Run = Callable[..., Awaitable[ExecResult]]
"""`Sandbox.exec` of the container."""

_ERRNO = {
    65: errno.ENOENT,
    66: errno.EISDIR,
    67: errno.EACCES,
}
_ESCAPE = re.compile(r"\\([0-7]{3})")

_CHECK = """\
check() {
  [ ! -d "$1" ] || exit 66
  if [ -e "$1" ]; then [ -f "$1" ] || exit 67; fi
}
"""
_READ = (
    _CHECK
    + """\
check "$1"; [ -e "$1" ] || exit 65
if [ -z "$2" ]; then exec cat -- "$1"; else exec head -c "$2" -- "$1"; fi
"""
)
_WRITE = (
    _CHECK
    + """\
check "$1"; mkdir -p -- "${1%/*}/" && cat >"$1" || exit 1
[ -z "$2" ] || chmod "$2" "$1"
"""
)
_UPLOAD = """\
[ "$3" = folder ] || [ ! -d "$2" ] || exit 66
mkdir -p -- "$1" && tar -xpf - -C "$1"
"""
_DOWNLOAD = """\
[ -e "$1" ] || exit 65
path=$(readlink -f -- "$1") && tar -cf - -C "${path%/*}/" -- "${path##*/}"
"""


class OnMountError(Exception):
    """What a path leads to is on such a mount."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(place)


def mounts_of(lines: Iterable[bytes]) -> frozenset[str]:
    """Mount points, of lines with their names as ``mountinfo`` escapes them."""
    names = (line.decode(errors="surrogateescape") for line in lines)
    return frozenset(_ESCAPE.sub(lambda found: chr(int(found[1], 8)), name) for name in names)


class Mounted:
    """Moves files by commands.

    Args:
        run: runs a command in the container.
    """

    def __init__(self, run: Run, owner: Ownership) -> None:
        self._run = run
        self._owner = owner

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        limit = "" if max_bytes is None else str(max_bytes)
        return (await self._do(_READ, path, limit)).stdout

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole."""
        await self._do(_WRITE, path, "" if mode is None else f"{mode:o}", stdin=data)

    async def upload(self, source: Path, path: str) -> None:
        """Copy a host file or folder in; needs ``tar`` in the image."""
        folder = posixpath.dirname(path)
        kind, data = await asyncio.to_thread(self._packed, source, path, folder)
        await self._do(_UPLOAD, folder, path, kind, stdin=data)

    def _packed(self, source: Path, path: str, folder: str) -> tuple[str, bytes]:
        with Pack(folder, self._owner) as pack:
            pack.add_tree(path, source)
            return "folder" if source.is_dir() else "file", b"".join(pack.pieces())

    async def download(self, path: str, target: Path) -> None:
        """Copy a file or folder out; needs ``tar`` in the image."""
        packed = (await self._do(_DOWNLOAD, path)).stdout
        await asyncio.to_thread(unpack, iter([packed]), target, Allowance(path))

    async def _do(self, script: str, path: str, *words: str, stdin: bytes = b"") -> ExecResult:
        argv = ["/bin/sh", "-c", script, "sh", path, *words]
        done = await self._run(argv, stdin=stdin, cwd="/", max_output_bytes=READ_BYTES)
        if done.truncated:
            raise OSError(errno.EFBIG, f"more than {READ_BYTES >> 20} MiB", path)
        if done.exit_code != 0:
            code = _ERRNO.get(done.exit_code, errno.EACCES)
            said = done.stderr.decode(errors="replace").strip()[-200:]
            why = os.strerror(code) if done.exit_code in (65, 66) else said or "not a regular file"
            raise OSError(code, f"{why} (on a mount that only commands see)", path)
        return done
