"""What sandboxes on the host's kernel have in common: how a command and a session are run."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Generic, Protocol, TypeVar, cast

from attrs import frozen

from ale.errors import SandboxError
from ale.protocols import Sandbox
from ale.sandboxes import BaseSandbox, Command, Files, refused
from ale.types import ExecResult
from ale_sandboxing.process import process_tags
from ale_sandboxing.process.backend import HostBackend
from ale_sandboxing.process.records import Record
from ale_sandboxing.process.shell import HostShell, Pipes
from ale_sandboxing.process.spawn import command_line, input_of, pipe
from ale_sandboxing.shell.capture import result_of
from ale_sandboxing.shell.output import Drains, Pump
from ale_sandboxing.shell.session import ShellSession
from ale_sandboxing.shell.text import as_bytes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NotStartedError(Exception):
    """A process could not be started because of its arguments; the text says why."""


class Running(Protocol):
    """A process of a sandbox."""

    @property
    def ended(self) -> "asyncio.Future[int]":
        """Its exit code, 128 + n for signal n. NotStartedError, or SandboxError: it is unknown."""
        ...

    @property
    def note(self) -> str:
        """What the first output has to say: it was started elsewhere. Empty if not."""
        ...


@frozen
class Launch:
    """A process to start."""

    number: int
    """Of the command in its sandbox, from 1."""
    argv: Sequence[bytes]
    bash: bool
    """The program is bash; else ``/bin/sh``."""
    env: Mapping[str, str]
    cwd: str | None
    """Relative to the workspace."""
    files: tuple[int, int, int]
    """Its stdin, stdout and stderr; the caller closes its own copies."""
    elsewhere: bool = False
    """Start it in another folder if `cwd` can't be entered."""


RunningT = TypeVar("RunningT", bound=Running)


class HostSandbox(BaseSandbox, Generic[RunningT]):
    """Runs each command as a process that carries the sandbox's tag.

    Args:
        backend: opens copies, and says what its sandboxes can do.
        files: moves its files.
        pipes: between this process and the shells of its sessions.
        env: of every command.
        bash: sessions are of bash; else of ``/bin/sh``.
    """

    def __init__(
        self,
        backend: HostBackend[Any, Any],
        record: Record,
        workdir: str,
        *,
        files: Files,
        pipes: Pipes,
        env: Mapping[str, str],
        bash: bool,
    ) -> None:
        super().__init__(record.id, workdir, backend.capabilities, files)
        self._backend = backend
        self.pipes = pipes
        self.drains = Drains()
        self.gate = asyncio.Lock()
        """While it is held, no command and no session's command starts."""
        self._tag = record.tag
        self._env = {"PATH": PATH, "LANG": "C.UTF-8", **env}
        self._bash = bash
        self._monotonic = backend.context.monotonic
        self._commands = 0
        self._running = 0

    @abstractmethod
    def launch(self, launch: Launch) -> RunningT:
        """Start a process.

        Raises:
            NotStartedError: because of its arguments; `Running.ended` may raise it too.
            SandboxError: the machine failed.
        """

    @abstractmethod
    def limits(self, number: int, *, bash: bool) -> str:
        """What the n-th command's shell runs first: commands that each end in ``;``."""

    def kill_command(self, number: int, running: RunningT) -> None:
        """Kill the n-th command and what it has started, without waiting for their end."""
        process_tags.kill(self._tag, number)

    async def end_command(self, number: int, running: RunningT) -> None:
        """Kill the n-th command and all that it has started, and wait."""
        await process_tags.end(self._tag, number)

    async def fork(self) -> Sandbox:
        """Another sandbox with the current files."""
        self.check_open()
        return cast("Sandbox", await self._backend.fork(self))

    async def snapshot(self) -> str:
        """Keep the current files for `HostBackend.restore`."""
        self.check_open()
        return await self._backend.snapshot(self)

    async def gate_opened(self) -> None:
        """Wait while `gate` is held."""
        if self.gate.locked():
            async with self.gate:
                self.check_open()

    def _next(self) -> int:
        self._commands += 1
        return self._commands

    def _launch(
        self,
        number: int,
        argv: Sequence[bytes],
        env: Mapping[str, str],
        cwd: str | None,
        files: tuple[int, int, int],
        *,
        bash: bool = False,
        elsewhere: bool = False,
    ) -> RunningT:
        named = {**self._env, **env, process_tags.VARIABLE: self._tag.variable(number)}
        return self.launch(Launch(number, argv, bash, named, cwd, files, elsewhere))

    async def execute(self, command: Command) -> ExecResult:
        """Run one command in a shell of its own."""
        await self.gate_opened()
        started, number = self._monotonic(), self._next()
        limits = as_bytes(self.limits(number, bash=False))
        self._running += 1
        try:
            with command_line(command.command, limits=limits, file=self.pipes.file) as argv:
                running, pumps = self._start(number, argv, command)
                code, timed_out = await self._outcome(number, running, pumps, command.timeout_s)
        except NotStartedError as error:
            return refused(str(error))
        finally:
            self._running -= 1
        stdout, stderr = (self.drains.finish(pump) for pump in pumps)
        if self.closed:
            raise SandboxError(f"sandbox {self.id} was closed while the command ran")
        took = self._monotonic() - started
        return result_of(code, stdout, stderr, timed_out=timed_out, duration_s=took)

    def _start(
        self, number: int, argv: Sequence[bytes], command: Command
    ) -> tuple[RunningT, tuple[Pump, Pump]]:
        with ExitStack() as child_ends, ExitStack() as on_failure:
            source = input_of(command.stdin, child_ends)
            out_reader, out_writer = pipe(on_failure, child_ends)
            err_reader, err_writer = pipe(on_failure, child_ends)
            files = (source, out_writer, err_writer)
            running = self._launch(number, argv, command.env, command.cwd, files)
            on_failure.pop_all()
        most = command.max_output_bytes
        return running, (Pump(out_reader, most), Pump(err_reader, most))

    async def _outcome(
        self, number: int, running: RunningT, pumps: tuple[Pump, Pump], timeout_s: float | None
    ) -> tuple[int, bool]:
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    return await asyncio.shield(running.ended), False
            except TimeoutError:
                await self.end_command(number, running)
                return await running.ended, True
        except BaseException as error:
            for each in pumps:
                each.close()
            if not isinstance(error, NotStartedError):
                self.kill_command(number, running)
            raise

    async def open_session(self, env: Mapping[str, str], cwd: str | None) -> ShellSession:
        """Open a shell: bash where there is one, else ``/bin/sh``.

        Where the workspace is gone, it is opened elsewhere, and its first command says so.
        """
        await self.gate_opened()
        number = self._next()
        argv = [b"bash", b"--norc", b"--noprofile"] if self._bash else [b"sh"]
        with ExitStack() as child_ends, ExitStack() as on_failure:
            reader, writer = os.pipe()
            child_ends.callback(os.close, reader)
            on_failure.callback(os.close, writer)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            child_ends.callback(os.close, nowhere)
            files = (reader, nowhere, nowhere)
            try:
                running = self._launch(
                    number, argv, env, cwd, files, bash=self._bash, elsewhere=cwd is None
                )
            except NotStartedError as error:
                raise SandboxError(f"could not open a session: {error}") from error
            on_failure.pop_all()
        shell = HostShell(
            writer,
            self.pipes,
            running.ended,
            kill=lambda: self.end_command(number, running),
            closed=lambda: self.closed,
            finish=self.drains.finish,
        )
        session = self.session_of(shell, running)
        session.start(as_bytes(f"{self.limits(number, bash=self._bash)}\n"))
        return session

    def session_of(self, shell: HostShell, running: RunningT) -> ShellSession:
        """The session of a shell that has been started."""
        return ShellSession(
            shell,
            resets_lines=self._bash,
            monotonic=self._monotonic,
            gate=self.gate,
            note=lambda: running.note,
        )
