"""Files in and out: the supervisor opens them as a command would, this process copies the bytes.

So no path or link leads out of the sandbox, and new files belong to its user.
"""

import asyncio
import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ale.folders import must_be_file
from ale.sandboxes import Allowance, within
from ale_sandbox_bubblewrap import hostfiles
from ale_sandbox_bubblewrap.base import WORKSPACE
from ale_sandbox_bubblewrap.client import SupervisorClient

T = TypeVar("T")
_INLINE_BYTES = 1 << 18
"""Up to this size a thread would cost more than the work."""
_NOT_A_LINK = os.O_RDONLY | os.O_NOFOLLOW


class Files:
    """Files of one sandbox. See `ale.sandboxes.Files`.

    Args:
        writable: waits while its layers change.
    """

    def __init__(self, client: SupervisorClient, writable: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._writable = writable

    async def _open(self, path: str, flags: int) -> int:
        try:
            _, (descriptor,) = await self._client.ask(do="open", path=path, flags=flags)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a named pipe without a reader
                raise PermissionError(errno.EACCES, "not a regular file", path) from error
            raise
        try:
            must_be_file(os.fstat(descriptor).st_mode, path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        descriptor = await self._open(place(path), os.O_RDONLY)
        size = os.fstat(descriptor).st_size

        def work() -> bytes:
            with os.fdopen(descriptor, "rb") as file:
                return file.read(within(size, max_bytes, path))

        return await _do(size, work)

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole. A new one gets 0644 unless `mode` says other."""
        await self._writable()
        real, flags = place(path), os.O_WRONLY | os.O_CREAT
        try:
            descriptor = await self._open(real, flags)
        except FileNotFoundError:
            await self._client.ask(do="folders", path=posixpath.dirname(real))
            descriptor = await self._open(real, flags)

        def work() -> None:
            with os.fdopen(descriptor, "wb") as file:
                file.truncate(0)
                file.write(data)
                if mode is not None:
                    os.fchmod(descriptor, mode)

        await _do(len(data), work)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in; existing folders are merged."""
        await self._writable()
        entry = hostfiles.Entry.behind(source)
        real = place(target)
        with contextlib.suppress(FileNotFoundError):
            about, _ = await self._client.ask(do="about", path=real)
            if stat.S_ISDIR(about["mode"]) and entry.kind != stat.S_IFDIR:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        await self._client.ask(do="folders", path=posixpath.dirname(real))
        await self._put(entry, real)

    async def _put(self, entry: hostfiles.Entry, real: str) -> None:
        if entry.kind not in hostfiles.KINDS:
            return
        _, descriptors = await self._client.ask(
            do="place", path=real, mode=entry.mode, link=entry.link
        )
        for descriptor in descriptors:
            await _do(entry.size, partial(entry.fill, descriptor))
        if entry.kind == stat.S_IFDIR:
            for inner in entry.inner():
                await self._put(inner, f"{real}/{inner.path.name}")
            mode = stat.S_IMODE(entry.mode)
            await self._client.ask(do="finish", path=real, mode=mode, time=entry.time)

    async def download(self, source: str, target: Path) -> None:
        """Copy out. A link that is asked for by name is followed, inside the sandbox."""
        real = place(source)
        about, _ = await self._client.ask(do="about", path=real)
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        allowance, finishing = Allowance(source), []
        waiting = [(real, about, target, os.O_RDONLY)]
        while waiting:
            path, about, copy, flags = waiting.pop()
            if not stat.S_ISDIR(about["mode"]):
                await self._get_file(path, about, copy, flags, allowance)
                continue
            allowance.take()
            hostfiles.make_folder(copy)
            finishing.append((copy, about))
            answer, _ = await self._client.ask(do="list", path=path)
            for name, inner in answer["entries"].items():
                waiting.append((f"{path}/{name}", inner, copy / name, _NOT_A_LINK))
        # Last, and from the inside out: a folder may forbid what is put into it.
        for copy, about in reversed(finishing):
            hostfiles.finish_folder(copy, about)

    async def _get_file(
        self, real: str, about: Mapping[str, Any], target: Path, flags: int, allowance: Allowance
    ) -> None:
        if not stat.S_ISREG(about["mode"]):
            allowance.take()
            hostfiles.save_special(target, about)
            return
        descriptor = await self._open(real, flags)
        size = os.fstat(descriptor).st_size
        try:
            allowance.take(size)
        except OSError:
            os.close(descriptor)
            raise
        await _do(size, partial(hostfiles.save, descriptor, target, about))


def place(path: str) -> str:
    """An absolute path in the sandbox. The supervisor resolves links and ``..``."""
    return posixpath.join(WORKSPACE, path) if path else WORKSPACE


async def _do(size: int, work: Callable[[], T]) -> T:
    return work() if size <= _INLINE_BYTES else await asyncio.to_thread(work)
