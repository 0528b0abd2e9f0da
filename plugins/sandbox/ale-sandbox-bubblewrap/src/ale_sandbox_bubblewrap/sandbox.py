"""One sandbox: the host's side of its supervisor."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.types import Capabilities, ExecResult
from ale_sandbox_bubblewrap import base
from ale_sandbox_bubblewrap.client import Job, StartError, SupervisorClient
from ale_sandbox_bubblewrap.control import Control
from ale_sandbox_bubblewrap.shell import BubblewrapSession, BubblewrapShell
from ale_sandbox_bubblewrap.store import BubblewrapRecord
from ale_sandbox_bubblewrap.transfer import Files, place
from ale_sandbox_bubblewrap.wire import text_of
from ale_sandbox_process import process_tags
from ale_sandbox_process.spawn import command_line, input_of, pipe
from ale_sandbox_shell.output import Capture, Drains, Pump, result_of
from ale_sandbox_shell.text import NUL_REFUSED, as_bytes, has_nul, refused

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S = 20.0


@frozen(kw_only=True)
class Setup:
    """What a sandbox gets from its backend."""

    capabilities: Capabilities
    env: Mapping[str, str]
    limits: str
    """``ulimit`` commands; each ends in ``;``."""
    bash: bool
    """Sessions are of bash; else of sh."""
    network: bool
    """It shares the host's."""
    client: SupervisorClient
    control: Control
    monotonic: Callable[[], float]
    fork: Callable[["BubblewrapSandbox"], Awaitable["BubblewrapSandbox"]]
    snapshot: Callable[["BubblewrapSandbox"], Awaitable[str]]
    release: Callable[["BubblewrapSandbox"], Awaitable[None]]
    """Removes what is left when its processes have ended."""


class BubblewrapSandbox:
    """Runs commands in namespaces. See `ale.protocols.Sandbox` for what each method promises."""

    def __init__(self, setup: Setup, record: BubblewrapRecord) -> None:
        self._setup = setup
        self.record = record
        self.client = setup.client
        self.control = setup.control
        self.network = setup.network
        self._tag = record.tag
        self._files = Files(setup.client)
        self._commands = 0
        self._running = 0
        self.sessions: list[BubblewrapSession] = []
        self.switch_lock = asyncio.Lock()
        """Held while the layers change: no command starts meanwhile."""
        self.layering = asyncio.Lock()
        """Held while a fork or snapshot is made of it."""
        self._drains = Drains()
        self._closing: asyncio.Task[None] | None = None
        self._env = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": base.HOME,
            "USER": base.USER,
            **setup.env,
        }

    @property
    def id(self) -> str:
        """Unique among the sandboxes that are open."""
        return self.record.id

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, the same in every sandbox."""
        return base.WORKSPACE

    @property
    def capabilities(self) -> Capabilities:
        """The backend's."""
        return self._setup.capabilities

    @property
    def closed(self) -> bool:
        """True from the moment `close` is called."""
        return self._closing is not None

    @property
    def idle(self) -> bool:
        """No command runs."""
        return not self._running and all(session.idle for session in self.sessions)

    def _check_open(self) -> None:
        if self.closed:
            raise SandboxError(f"sandbox {self.id} is closed")

    def _message(
        self, program: str, argv: Sequence[bytes], env: Mapping[str, str] | None, cwd: str | None
    ) -> tuple[int, dict[str, Any]]:
        self._commands += 1
        number = self._commands
        named = {**self._env, **(env or {}), process_tags.VARIABLE: self._tag.variable(number)}
        limits = self._tag.values(number)
        return number, {
            "program": program,
            "argv": [text_of(word) for word in argv],
            "env": {text_of(as_bytes(k)): text_of(as_bytes(v)) for k, v in named.items()},
            "cwd": text_of(as_bytes(place(cwd) if cwd else base.WORKSPACE)),
            "soft": None if limits is None else limits[0],
        }

    async def _wait_for_switch(self) -> None:
        if self.switch_lock.locked():
            async with self.switch_lock:
                self._check_open()

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
            raise UnsupportedError("the bubblewrap sandbox has one user")
        if has_nul(command, cwd):
            return refused(NUL_REFUSED)
        await self._wait_for_switch()
        started = self._setup.monotonic()
        limits = as_bytes(self._setup.limits)
        with command_line(command, limits=limits, file=self._file) as argv:
            number, message = self._message(base.SHELL, argv, env, cwd)
            job, pumps = self._start(message, stdin, max_output_bytes)
            self._running += 1
            try:
                outcome, timed_out = await self._outcome(number, job, pumps, timeout_s)
            finally:
                self._running -= 1
        stdout, stderr = (self.finish(pump) for pump in pumps)
        if isinstance(outcome, StartError):
            return refused(_why(outcome, message["cwd"]))
        took = self._setup.monotonic() - started
        return result_of(outcome, stdout, stderr, timed_out=timed_out, duration_s=took)

    def _start(
        self, message: dict[str, Any], stdin: bytes | None, limit: int
    ) -> tuple[Job, tuple[Pump, Pump]]:
        with ExitStack() as child_ends, ExitStack() as on_failure:
            source = input_of(stdin, child_ends)
            out_reader, out_writer = pipe(on_failure, child_ends)
            err_reader, err_writer = pipe(on_failure, child_ends)
            job = self.client.run(message, [source, out_writer, err_writer])
            on_failure.pop_all()
        return job, (Pump(out_reader, limit), Pump(err_reader, limit))

    @contextlib.contextmanager
    def _file(self, text: bytes) -> Iterator[bytes]:
        """A command in a file, for the shell to read."""
        name = self.control.file(text)
        try:
            yield self.control.inside(name)
        finally:
            self.control.drop(name)

    async def _outcome(
        self, number: int, job: Job, pumps: tuple[Pump, Pump], timeout_s: float | None
    ) -> tuple[int | StartError, bool]:
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    return await asyncio.shield(job.ended), False
            except TimeoutError:
                await self.end_command(number)
                return await job.ended, True
        except BaseException:
            for pump in pumps:
                pump.close()
            if not self.client.gone.done():
                process_tags.kill(self._tag, number)
            raise

    def finish(self, pump: Pump) -> Capture:
        """End a pump; keep draining its pipe while a background process holds it open."""
        return self._drains.finish(pump)

    async def end_command(self, command: int) -> None:
        """Kill all that the n-th command started."""
        await process_tags.end(self._tag, command)

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> BubblewrapSession:
        """Open a shell: bash where the host has one, else sh."""
        self._check_open()
        await self._wait_for_switch()
        bash = self._setup.bash
        argv = [b"bash", b"--norc", b"--noprofile"] if bash else [b"sh"]
        number, message = self._message(base.BASH if bash else base.SHELL, argv, env, cwd)
        reader, writer = os.pipe()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            job = self.client.run(message, [reader, nowhere, nowhere])
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
            os.close(nowhere)
        session = BubblewrapSession(
            BubblewrapShell(self, job, writer, number), bash=bash, monotonic=self._setup.monotonic
        )
        session.start(f"{self._setup.limits}\n")
        self.sessions = [one for one in self.sessions if not one.closed] + [session]
        return session

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes."""
        self._check_open()
        return await self._files.read(path, max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file whole, making its folders."""
        self._check_open()
        await self._wait_for_switch()
        await self._files.write(path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        self._check_open()
        await self._wait_for_switch()
        await self._files.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        self._check_open()
        await self._files.download(source, target)

    async def end_processes(self) -> int:
        """Kill every process of the sandbox, sessions included; the number killed."""
        self._check_open()
        try:
            answer, _ = await self.client.ask(do="end")
        except BlockingIOError:
            # The process limit is reached: end some, so that the one that kills can start.
            count = await asyncio.to_thread(self._kill_commands)
            answer, _ = await self.client.ask(do="end")
            return count + int(answer["count"])
        return int(answer["count"])

    def _kill_commands(self) -> int:
        return sum(len(process_tags.kill(self._tag, n)) for n in range(1, self._commands + 1))

    async def fork(self) -> "BubblewrapSandbox":
        """Another sandbox with the current files."""
        self._check_open()
        return await self._setup.fork(self)

    async def snapshot(self) -> str:
        """Save the current files for `BubblewrapBackend.restore`."""
        self._check_open()
        return await self._setup.snapshot(self)

    async def close(self) -> None:
        """End the sandbox with everything in it, and remove what it has left."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self.layering:
            try:
                await end(self.client, self.id)
            finally:
                self._drains.close()
                self.control.close()
                await self._setup.release(self)


async def end(client: SupervisorClient, id: str) -> None:
    """Tell a supervisor to end its sandbox, and wait.

    Raises:
        SandboxError: it does not end in time.
    """
    client.close()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.shield(client.gone)
    except TimeoutError as error:
        raise SandboxError(f"sandbox {id} did not end") from error


def _why(refused: StartError, cwd: str) -> bytes:
    """The message for a command that could not be started."""
    reason = os.strerror(refused.errno)
    return (f"can't enter {cwd}: {reason}\n" if refused.cwd else f"{reason}\n").encode()
