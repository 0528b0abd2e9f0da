"""For authors of sandboxes: what all of them do alike, and one that passes calls on to another.

A sandbox of your own derives from `BaseSandbox`, which has the methods of `ale.protocols.Sandbox`
and checks their arguments. Define how a command is run, how a shell is opened, how processes are
ended and what is removed at the end, and give it an object that moves files::

    class FolderSandbox(BaseSandbox):
        async def execute(self, command: Command) -> ExecResult: ...
        async def open_session(self, env: Mapping[str, str], cwd: str | None) -> Session: ...
        async def end_processes(self) -> int: ...
        async def release(self) -> None: ...

`ForwardingSandbox` is for what stands between an agent and a sandbox: every call goes through one
method, to be recorded, answered or refused there.
"""

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from attrs import frozen

from ale.errors import InputError, SandboxError, UnsupportedError
from ale.protocols import DEFAULT_OUTPUT_BYTES, Sandbox, Session
from ale.types import Capabilities, ExecResult

__all__ = [
    "DOWNLOAD_BYTES",
    "DOWNLOAD_ENTRIES",
    "NUL_IN_COMMAND",
    "READ_BYTES",
    "Allowance",
    "BaseSandbox",
    "Command",
    "Files",
    "ForwardingSandbox",
    "ForwardingSession",
    "check_path",
    "check_shared",
    "refused",
    "within",
]

NUL_IN_COMMAND = "a command can't contain a NUL byte"
"""Why such a command is `refused`."""

READ_BYTES = 256 << 20
"""Most bytes of a file that `Sandbox.read` gives without `max_bytes`."""
DOWNLOAD_BYTES = 2 << 30
"""Most bytes of all files of one `Sandbox.download`, by their sizes: holes count, too."""
DOWNLOAD_ENTRIES = 100_000
"""Most files, folders and links of one download."""


class Allowance:
    """How much of a sandbox one download may still bring onto this machine.

    Args:
        path: what is downloaded, for errors.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._bytes = DOWNLOAD_BYTES
        self._entries = DOWNLOAD_ENTRIES

    def take(self, size: int = 0) -> None:
        """Count an entry before it is copied.

        Args:
            size: bytes of a file; 0 for a folder or link.

        Raises:
            OSError: EFBIG: it is one too many, or too large.
        """
        self._bytes -= size
        self._entries -= 1
        if self._bytes < 0:
            raise OSError(errno.EFBIG, f"more than {DOWNLOAD_BYTES >> 30} GiB", self._path)
        if self._entries < 0:
            raise OSError(errno.EFBIG, f"more than {DOWNLOAD_ENTRIES:,} entries", self._path)


def within(size: int, max_bytes: int | None, path: str) -> int:
    """How many bytes of a file `Sandbox.read` reads.

    Args:
        size: bytes of the file, as far as it is known.

    Raises:
        OSError: EFBIG: `max_bytes` is None, and the file is larger than `READ_BYTES`.
    """
    if max_bytes is not None:
        return max_bytes
    if size > READ_BYTES:
        message = f"more than {READ_BYTES >> 20} MiB; read its beginning, or download it"
        raise OSError(errno.EFBIG, message, path)
    return READ_BYTES


_KERNELS = ("/proc", "/sys", "/dev")
_RUNTIME = ("/run", "/var/run")


def check_shared(paths: Iterable[Path], *, unreadable: bool = False) -> None:
    """Check what a sandbox is to see of the host, read-only: that it is nothing but files.

    A mount that is read-only lets a process write through a socket or a named pipe all the same.
    What a service of the host puts there later is not seen by this check.

    Args:
        unreadable: folders that this user can't look into may be shared, because the sandbox has no
            more rights than this user.

    Raises:
        InputError: a path is not there, belongs to the kernel, or is or holds a socket, a named
            pipe or a device.
    """
    for path in paths:
        why = _why_not_shared(path, unreadable=unreadable)
        if why is not None:
            message = f"{path} can't be shared with a sandbox: {why}"
            raise InputError.of(message, path="sandbox.allowlist_paths")


def _why_not_shared(path: Path, *, unreadable: bool) -> str | None:
    if not path.exists():
        return "it is not there"
    for place in {path.absolute(), path.resolve()}:
        for name in _KERNELS:
            if place.is_relative_to(name) or Path(name).is_relative_to(place):
                return f"{name} is the kernel's own"
        for name in _RUNTIME:
            if Path(name).is_relative_to(place):
                return f"{name} holds sockets of services, which no mount makes read-only"
    return _special_in(path.resolve(), unreadable=unreadable)


def _special_in(top: Path, *, unreadable: bool) -> str | None:
    if not top.is_dir():
        return None if top.is_file() else f"{top} is a socket, a named pipe or a device"
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except PermissionError:
            if not unreadable:
                return f"this user can't look into {folder}, which may hold sockets"
            continue
        except FileNotFoundError:
            continue
        waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
        for entry in found:
            if not (entry.is_symlink() or entry.is_dir() or entry.is_file()):
                return f"{entry.path} is a socket, a named pipe or a device"
    return None


@frozen
class Command:
    """The arguments of a call of `Sandbox.exec`, with the same meaning."""

    command: str | Sequence[str]
    """Without a NUL byte, and not empty."""
    timeout_s: float | None
    stdin: bytes | None
    env: Mapping[str, str]
    cwd: str | None
    user: str | None
    max_output_bytes: int


class Files(Protocol):
    """Moves files of one sandbox; each method raises as that of `Sandbox` with its name."""

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes, the first `max_bytes` of them."""
        ...

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file whole, making parent folders."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        ...


LONGEST_NAME = 255
LONGEST_PATH = 4095
"""Bytes, of Linux, without the final NUL."""


def check_path(path: str) -> None:
    """Check what is wrong with a path on every file system, before one is asked.

    Raises:
        OSError: it has a NUL byte, or it or a name in it is too long.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path can't contain a NUL byte", path)
    raw = path.encode(errors="surrogateescape")
    if len(raw) > LONGEST_PATH or max(map(len, raw.split(b"/"))) > LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)


def refused(why: str) -> ExecResult:
    """The result of a command that could not be started because of its arguments."""
    return ExecResult(exit_code=126, stdout=b"", stderr=f"{why}\n".encode(errors="replace"))


class BaseSandbox(ABC):
    """A sandbox; see `ale.protocols.Sandbox` for what each method promises.

    Args:
        id: unique among the sandboxes that are open.
        workdir: absolute path of the workspace, as a command sees it.
        files: moves files; may be replaced while the sandbox is open.
    """

    def __init__(self, id: str, workdir: str, capabilities: Capabilities, files: Files) -> None:
        self.id = id
        self.workdir = workdir
        self.capabilities = capabilities
        self.files = files
        self._closing: asyncio.Task[None] | None = None

    # -- for the author

    @abstractmethod
    async def execute(self, command: Command) -> ExecResult:
        """Run a command. Raises SandboxError: the sandbox is gone."""

    @abstractmethod
    async def open_session(self, env: Mapping[str, str], cwd: str | None) -> Session:
        """Open a persistent shell. Raises SandboxError: the sandbox is gone."""

    @abstractmethod
    async def end_processes(self) -> int:
        """Kill every process in the sandbox, sessions included; the number killed."""

    @abstractmethod
    async def release(self) -> None:
        """End what runs and remove all of it; called once."""

    @property
    def closed(self) -> bool:
        """True from the moment `close` is called."""
        return self._closing is not None

    def check_open(self) -> None:
        """Raise a SandboxError if it is closed."""
        if self.closed:
            raise SandboxError(f"sandbox {self.id} is closed")

    # -- the protocol

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command. See `ale.protocols.Sandbox.exec`."""
        self.check_open()
        if user is not None and "switch-user" not in self.capabilities.features:
            raise UnsupportedError(f"sandbox {self.id} can't switch users")
        env = env or {}
        words = [command] if isinstance(command, str) else command
        if not words:
            raise ValueError("an empty argument vector")
        if "\0" in "".join((*words, cwd or "", *env, *env.values())):
            return refused(NUL_IN_COMMAND)
        return await self.execute(
            Command(command, timeout_s, stdin, env, cwd, user, max_output_bytes)
        )

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Session:
        """Open a persistent shell. See `ale.protocols.Sandbox.session`."""
        self.check_open()
        return await self.open_session(env or {}, cwd)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes."""
        self.check_open()
        check_path(path)
        return await self.files.read(path, max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file whole, making its folders."""
        self.check_open()
        check_path(path)
        await self.files.write(path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        self.check_open()
        check_path(target)
        await self.files.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        self.check_open()
        check_path(source)
        await self.files.download(source, target)

    async def fork(self) -> Sandbox:
        """Refused; override it where `Capabilities.fork` is not ``replay``."""
        raise UnsupportedError(f"sandbox {self.id} can't be forked")

    async def snapshot(self) -> str:
        """Refused; override it where `Capabilities.snapshot` is True."""
        raise UnsupportedError(f"sandbox {self.id} has no snapshots")

    async def close(self) -> None:
        """Remove all of it, also when the caller is cancelled. May be called again."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self.release())
        await asyncio.shield(self._closing)


class ForwardingSandbox:
    """Passes every call on to a real sandbox, through `call`."""

    def __init__(self, real: Sandbox) -> None:
        self.real = real

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Every method but `close`; its options are those that differ from the default."""
        return await getattr(self.real, method)(*arguments, **options)

    @property
    def id(self) -> str:
        """The real one's."""
        return self.real.id

    @property
    def workdir(self) -> str:
        """The real one's."""
        return self.real.workdir

    @property
    def capabilities(self) -> Capabilities:
        """The real one's."""
        return self.real.capabilities

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        """Run one command. See `ale.protocols.Sandbox.exec`."""
        return cast(ExecResult, await self.call("exec", command, **options))

    async def session(self, **options: Any) -> Session:
        """Open a persistent shell. See `ale.protocols.Sandbox.session`."""
        return cast(Session, await self.call("session", **options))

    async def read(self, path: str, **options: Any) -> bytes:
        """A file's bytes."""
        return cast(bytes, await self.call("read", path, **options))

    async def write(self, path: str, data: bytes, **options: Any) -> None:
        """Write a file whole, making its folders."""
        await self.call("write", path, data, **options)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        await self.call("upload", source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        await self.call("download", source, target)

    async def end_processes(self) -> int:
        """Kill every process in the sandbox; the number killed."""
        return cast(int, await self.call("end_processes"))

    async def fork(self) -> Sandbox:
        """An independent copy of the real one."""
        return cast(Sandbox, await self.call("fork"))

    async def snapshot(self) -> str:
        """Keep the files of the real one."""
        return cast(str, await self.call("snapshot"))

    async def close(self) -> None:
        """Close the real one."""
        await self.real.close()


class ForwardingSession:
    """Passes every call on to a real session, through `call`."""

    def __init__(self, real: Session) -> None:
        self.real = real

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Every method."""
        return await getattr(self.real, method)(*arguments, **options)

    @property
    def closed(self) -> bool:
        """True once the shell of the real one has ended."""
        return self.real.closed

    async def run(self, command: str, **options: Any) -> ExecResult:
        """Run one command. See `ale.protocols.Session.run`."""
        return cast(ExecResult, await self.call("run", command, **options))

    async def close(self) -> None:
        """End the real one."""
        await self.call("close")
