"""One local sandbox: a folder, and a tag on every process."""

import asyncio
import contextlib
import os
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from attrs import frozen

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.types import Capabilities, ExecResult
from ale_sandbox_local.files import Area
from ale_sandbox_local.folders import Folders, Workspace
from ale_sandbox_local.limits import BASH, Dialect
from ale_sandbox_local.shell import LocalShell
from ale_sandbox_process import process_tags
from ale_sandbox_process.spawn import Child, command_line, start, start_error
from ale_sandbox_shell.output import Capture, Drains, Pump, result_of
from ale_sandbox_shell.session import ShellSession
from ale_sandbox_shell.text import NUL_REFUSED, as_bytes, has_nul, refused

P = ParamSpec("P")
T = TypeVar("T")
SHELL = "/bin/sh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INLINE_BYTES = 1 << 18
"""Files up to this size are read and written without a thread: it would cost more than they do."""


@frozen(kw_only=True)
class Setup:
    """What a sandbox gets from its backend."""

    record: Workspace
    capabilities: Capabilities
    env: Mapping[str, str]
    limits: Callable[[Dialect], str]
    """``ulimit`` lines."""
    dialect: Dialect
    """Of ``/bin/sh``."""
    bash: str | None
    """Its path; sessions fall back to ``/bin/sh``."""
    monotonic: Callable[[], float]
    fork: Callable[["LocalSandbox"], Awaitable["LocalSandbox"]]
    snapshot: Callable[["LocalSandbox"], Awaitable[str]]
    release: Callable[[Workspace], Awaitable[None]]
    """Removes folder and record."""


class LocalSandbox:
    """Runs commands on the host. See `ale.protocols.Sandbox` for what each method promises."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._tag = setup.record.tag
        self._folders = setup.record.folders
        self._area = Area(self._folders.work, self._folders.tmp)
        self._limits = setup.limits(setup.dialect)
        self._commands = 0
        self._idle_up_to = 0
        """Nothing runs any more of the commands up to this one."""
        self._children: set[Child] = set()
        self._drains = Drains()
        self._threads: set[asyncio.Future[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._env = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": self.workdir,
            "TMPDIR": str(self._folders.tmp),
            **setup.env,
        }

    @property
    def id(self) -> str:
        """Unique among the sandboxes that are open."""
        return self._setup.record.id

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace; also HOME."""
        return str(self._folders.work)

    @property
    def folders(self) -> Folders:
        """For the backend."""
        return self._folders

    @property
    def record(self) -> Workspace:
        """For the backend."""
        return self._setup.record

    @property
    def capabilities(self) -> Capabilities:
        """The backend's."""
        return self._setup.capabilities

    @property
    def closed(self) -> bool:
        """True from the moment `close` is called."""
        return self._closing is not None

    def _check_open(self) -> None:
        if self.closed:
            raise SandboxError(f"sandbox {self.id} is closed")

    def _cwd(self, cwd: str | None) -> str:
        return self.workdir if cwd is None else str(self._folders.work / cwd)

    def _next(self) -> int:
        self._commands += 1
        return self._commands

    def _environment(self, number: int, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**self._env, **(env or {}), process_tags.VARIABLE: self._tag.variable(number)}

    def _watch(self, child: Child, number: int) -> None:
        self._tag.apply(child.pid, number)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))

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
        self._check_open()
        if user is not None:
            raise UnsupportedError("the local sandbox can't switch users")
        if has_nul(command, cwd):
            return refused(NUL_REFUSED)
        started = self._setup.monotonic()
        number = self._next()
        folder = self._cwd(cwd)
        limits = as_bytes(self._limits + self._tag.script(number))
        with command_line(command, limits=limits, file=partial(self._file, number)) as argv:
            try:
                child, out, err = start(
                    argv,
                    executable=SHELL,
                    env=self._environment(number, env),
                    cwd=folder,
                    stdin=stdin,
                )
            except OSError as error:
                return refused(start_error(error, folder).encode())
            self._watch(child, number)
            pumps = Pump(out, max_output_bytes), Pump(err, max_output_bytes)
            code, timed_out = await self._outcome(number, child, pumps, timeout_s)
        stdout, stderr = (self.finish(pump) for pump in pumps)
        if self.closed:
            raise SandboxError(f"sandbox {self.id} was closed while the command ran")
        took = self._setup.monotonic() - started
        return result_of(code, stdout, stderr, timed_out=timed_out, duration_s=took)

    @contextlib.contextmanager
    def _file(self, number: int, text: bytes) -> Iterator[bytes]:
        """A command in a file, for the shell to read."""
        file = self._folders.script(number)
        file.write_bytes(text)
        try:
            yield as_bytes(shlex.quote(str(file)))
        finally:
            file.unlink(missing_ok=True)

    async def _outcome(
        self, number: int, child: Child, pumps: tuple[Pump, Pump], timeout_s: float | None
    ) -> tuple[int, bool]:
        try:
            code = await child.wait(timeout_s)
            if code is not None:
                return code, False
            await self.end_command(number, child)
            return await child.ended, True
        except BaseException:
            for pump in pumps:
                pump.close()
            child.kill()
            process_tags.kill(self._tag, number)
            raise

    def finish(self, pump: Pump) -> Capture:
        """End a pump; keep draining its pipe while a background process holds it open."""
        return self._drains.finish(pump)

    async def end_command(self, command: int, child: Child) -> None:
        """Kill the n-th command, `child`, and all that it started."""
        if self._idle_up_to < command - 1 or command < self._commands:
            await process_tags.end(self._tag, command, children=[child])
        else:  # it is the only one: one scan for it and for all
            await self._end_all()

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ShellSession:
        """Open a shell: bash where there is one, else ``/bin/sh``."""
        self._check_open()
        number = self._next()
        bash = self._setup.bash
        reader, writer = os.pipe()
        try:
            child = Child(
                [b"sh"] if bash is None else [b"bash", b"--norc", b"--noprofile"],
                executable=bash or SHELL,
                env=self._environment(number, env),
                cwd=self._cwd(cwd),
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            os.close(writer)
            raise SandboxError(f"could not open a session: {error}") from error
        finally:
            os.close(reader)
        self._watch(child, number)
        shell = LocalShell(
            self, child, number=number, script=writer, file=self._folders.script(number)
        )
        session = ShellSession(
            shell, resets_lines=bash is not None, monotonic=self._setup.monotonic
        )
        dialect = self._setup.dialect if bash is None else BASH
        session.start(as_bytes(f"{self._setup.limits(dialect)}{self._tag.script(number)}\n"))
        return session

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Tracked for `close`, which must not remove a folder that a thread still writes to."""
        self._check_open()
        running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
        self._threads.add(running)
        running.add_done_callback(self._threads.discard)
        return await asyncio.shield(running)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes."""
        return await self._in_thread(self._area.read, path, max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file whole, making its folders."""
        self._check_open()
        if len(data) <= _INLINE_BYTES:
            self._area.write(path, data, mode)
        else:
            await self._in_thread(self._area.write, path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        await self._in_thread(self._area.upload, source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        await self._in_thread(self._area.download, source, target)

    async def end_processes(self) -> int:
        """Kill every process of the sandbox, sessions included; the number killed."""
        self._check_open()
        return await self._end_all()

    async def _end_all(self) -> int:
        if self._idle_up_to == self._commands:
            return 0
        killed = await process_tags.end(self._tag, children=self._children)
        self._idle_up_to = self._commands  # nothing was started since that scan
        return killed

    async def fork(self) -> "LocalSandbox":
        """A copy of the files in a sandbox of its own."""
        self._check_open()
        return await self._setup.fork(self)

    async def snapshot(self) -> str:
        """Keep a copy of the files for `LocalBackend.restore`."""
        self._check_open()
        return await self._setup.snapshot(self)

    async def close(self) -> None:
        """Kill what runs and remove the folder and the record."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._threads:
            await asyncio.wait(self._threads)
        try:
            await self._end_all()
        finally:
            self._drains.close()
            await self._setup.release(self.record)
