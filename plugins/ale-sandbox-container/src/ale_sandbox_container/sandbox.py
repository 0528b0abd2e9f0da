"""One container: commands through its lanes, files through its engine."""

import asyncio
import logging
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.types import Capabilities, ExecResult
from ale_sandbox_container import script
from ale_sandbox_container.door import Door
from ale_sandbox_container.files import Files
from ale_sandbox_container.lane import Hello, Job
from ale_sandbox_container.pool import PATIENCE_S, LanePool
from ale_sandbox_container.shell import ContainerShell
from ale_sandbox_shell.output import Capture, Pump
from ale_sandbox_shell.session import KILLED, ShellSession
from ale_sandbox_shell.text import LONGEST_ARGUMENT, NUL_REFUSED, as_bytes

_LOG = logging.getLogger(__name__)

SHELL = b"/bin/sh"
_DEV_NULL = b"/dev/null"
_TRIES = 3
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELLS_OWN = frozenset(
    {"BASHOPTS", "BASH_VERSINFO", "EUID", "IFS", "LINENO", "OPTIND", "PPID", "SHELLOPTS", "UID"}
)
"""Variables that a shell does not let be set like any other."""


@frozen(kw_only=True)
class Setup:
    """What a sandbox gets from its backend."""

    id: str
    door: Door
    pool: LanePool
    hello: Hello
    files: Files
    workdir: str
    capabilities: Capabilities
    limits: str
    """Shell script, ``ulimit`` commands joined by ``&&``."""
    monotonic: Callable[[], float]
    token: Callable[[], str]
    user_pool: Callable[[str], LanePool]
    """Lanes for the commands of another user."""
    explain: Callable[[SandboxError], Awaitable[SandboxError]]
    """Says of a failure that the container has ended, where that is why."""
    fork: Callable[[], Awaitable["ContainerSandbox"]]
    snapshot: Callable[[], Awaitable[str]]
    release: Callable[[], Awaitable[None]]
    """Ends the container and all that belongs to it."""


@frozen
class Running:
    """A command of this sandbox."""

    number: int
    pool: LanePool
    job: Job


class ContainerSandbox:
    """Runs commands in a container. See `ale.protocols.Sandbox` for what each method promises."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._door = setup.door
        self._pools: dict[str | None, LanePool] = {None: setup.pool}
        self._count = 0
        self._running: dict[int, Running] = {}
        self._draining: set[Pump] = set()
        self._cleaning: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Part of the container's name, and its label ``ale.id``."""
        return self._setup.id

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace."""
        return self._setup.workdir

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

    def _pool(self, user: str | None) -> LanePool:
        if user not in self._pools:
            assert user is not None
            self._pools[user] = self._setup.user_pool(user)
        return self._pools[user]

    def _argv(
        self, command: str | Sequence[str], env: Mapping[str, str], files: ExitStack
    ) -> list[bytes]:
        odd = [f"{name}={value}" for name, value in env.items() if not _exportable(name)]
        prefix = [b"env", *map(as_bytes, odd)] if odd else []
        if not isinstance(command, str):
            if not command:
                raise ValueError("an empty argument vector")
            # Through a shell, which says what is missing and ends with 127 as shells do.
            run = [SHELL, b"-c", b'exec "$@"', b"sh"]
            return [*prefix, *run, *map(as_bytes, command)]
        text = as_bytes(command)
        if len(text) > LONGEST_ARGUMENT:
            file = self._door.file(text)
            files.callback(file.release)
            text = b". " + file.path
        return [*prefix, SHELL, b"-c", text]

    def _script(self, number: int, env: Mapping[str, str]) -> bytes:
        """What a command's process does to itself before it becomes the command."""
        plain = {name: value for name, value in env.items() if _exportable(name)}
        marked = f"ulimit -m {script.mark(number)}&&{self._setup.limits}&&".encode()
        return marked + script.exports(plain) + b":"

    def _cwd(self, cwd: str | None) -> str:
        return self.workdir if cwd is None else posixpath.join(self.workdir, cwd)

    async def _start(self, user: str | None, frame: Callable[[int], bytes]) -> Running:
        """Give a lane a command; the lane goes back when it ends."""
        pool = self._pool(user)
        lane = await pool.acquire()
        self._count += 1
        number = self._count
        job = lane.ask(frame(number))
        running = Running(number, pool, job)
        self._running[number] = running

        def ended(job: "asyncio.Future[tuple[int, ...] | None]") -> None:
            del self._running[number]
            pool.release(lane)
            if job.result() is None and not self.closed:
                # Something inside has killed the lane. Nobody will ever know how the command
                # would have ended, so it ends here.
                self._clean(running)

        job.ended.add_done_callback(ended)
        return running

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
        env = env or {}
        words = [command] if isinstance(command, str) else command
        if "\0" in "".join((*words, cwd or "", *env, *env.values())):
            return ExecResult(exit_code=126, stdout=b"", stderr=NUL_REFUSED)
        started = self._setup.monotonic()
        with ExitStack() as files, ExitStack() as pumps:
            out, err = (self._door.outlet(max_output_bytes) for _ in range(2))
            source = None if stdin is None else self._door.file(stdin)
            for made in (out, err, source):
                if made is not None:
                    files.callback(made.release)
            for pump in (out.pump, err.pump):
                pumps.callback(pump.close)
            argv = self._argv(command, env, files)
            running = await self._explained(
                self._start(
                    user,
                    lambda number: script.start(
                        argv,
                        stdin=_DEV_NULL if source is None else source.path,
                        stdout=out.path,
                        stderr=err.path,
                        cwd=as_bytes(self._cwd(cwd)),
                        setup=self._script(number, env),
                    ),
                )
            )
            code, timed_out = await self._outcome(running, timeout_s)
            pumps.pop_all()
        stdout, stderr = self.finish(out.pump), self.finish(err.pump)
        said = stderr.value()
        if not running.job.begun.result():
            code, said = _not_begun(said)
        return ExecResult(
            exit_code=code,
            stdout=stdout.value(),
            stderr=said,
            timed_out=timed_out,
            truncated=stdout.truncated or stderr.truncated,
            duration_s=self._setup.monotonic() - started,
        )

    async def _outcome(self, running: Running, timeout_s: float | None) -> tuple[int, bool]:
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                numbers = await asyncio.shield(running.job.ended)
        except TimeoutError:
            timed_out = True
            await self.end(running)
            numbers = running.job.ended.result() or (KILLED,)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self.end(running)))
            raise
        if self.closed:
            raise SandboxError(f"sandbox {self.id} was closed while the command ran")
        if numbers is None:
            await self.end(running)
            return KILLED, False
        return numbers[0], timed_out

    def _clean(self, running: Running) -> None:
        task = asyncio.ensure_future(self.end(running))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaned)

    def _cleaned(self, task: "asyncio.Task[None]") -> None:
        self._cleaning.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Whatever is asked of the sandbox next meets the same fault, and tells.
            _LOG.warning("sandbox %s: %s", self.id, task.exception())

    async def _explained(self, work: Awaitable[Running]) -> Running:
        try:
            return await work
        except SandboxError as error:
            raise await self._setup.explain(error) from error

    async def end(self, running: Running) -> None:
        """Kill all that a command has started, and wait for its end.

        Raises:
            SandboxError: it would not end, or nobody is left to kill it.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                if not await asyncio.shield(running.job.begun) and running.job.ended.result():
                    return
                await self._kill(running.pool, running.number)
                await asyncio.shield(running.job.ended)
        except TimeoutError:
            raise SandboxError(f"a command in sandbox {self.id} would not end") from None

    async def _kill(self, pool: LanePool, number: int | None) -> int:
        """Kill a command's processes, or all commands'; how many."""
        for _ in range(_TRIES):
            if self.closed:
                return 0
            lane = await pool.acquire(spare=True)
            job = lane.ask(script.kill(number))
            job.ended.add_done_callback(lambda _, lane=lane: pool.release(lane))  # type: ignore[misc]
            numbers = await asyncio.shield(job.ended)
            if numbers is None:
                continue  # that lane was killed meanwhile
            killed, left = numbers
            if left:
                raise SandboxError(f"{left} processes in sandbox {self.id} would not end")
            return killed
        raise SandboxError(f"something in sandbox {self.id} kills whatever would kill it")

    def finish(self, pump: Pump) -> Capture:
        """End a pump; where a background process still holds its pipe, go on draining it."""
        capture = pump.finish(self._draining.discard)
        if pump.open:
            self._draining.add(pump)
        return capture

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ShellSession:
        """Open a shell: bash where the image has one, else ``/bin/sh``."""
        self._check_open()
        env = env or {}
        bash = self._setup.hello.bash
        shell = ContainerShell(self._door, self.finish)
        with ExitStack() as files:
            argv = self._argv("", env, files)[:-3]
            argv += [SHELL] if bash is None else [bash.encode(), b"--norc", b"--noprofile"]
            try:
                running = await self._explained(
                    self._start(
                        None,
                        lambda number: script.start(
                            argv,
                            stdin=shell.stdin,
                            stdout=_DEV_NULL,
                            stderr=_DEV_NULL,
                            cwd=as_bytes(self._cwd(cwd)),
                            setup=self._script(number, env),
                        ),
                    )
                )
            except BaseException:
                shell.close()
                raise
        shell.attach(running.job, end=lambda: self.end(running), closed=lambda: self.closed)
        session = ShellSession(
            shell,
            resets_lines=bash is not None,
            monotonic=self._setup.monotonic,
            token=self._setup.token,
        )
        shell.listen(session.heard)
        session.start()
        return session

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes."""
        self._check_open()
        return await self._setup.files.read(path, max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file whole, making its folders."""
        self._check_open()
        await self._setup.files.write(path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        self._check_open()
        await self._setup.files.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        self._check_open()
        await self._setup.files.download(source, target)

    async def end_processes(self) -> int:
        """Kill every process but the supervisor's, sessions included; the number killed."""
        self._check_open()
        running = list(self._running.values())
        for command in running:
            await asyncio.shield(command.job.begun)
        count = 0
        for pool in self._pools.values():
            count += await self._kill(pool, None)
        for command in running:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(command.job.ended)
        return count

    async def fork(self) -> "ContainerSandbox":
        """A container from a new layer that holds this one's files."""
        self._check_open()
        return await self._setup.fork()

    async def snapshot(self) -> str:
        """Keep the files as an image, for the backend's `restore`."""
        self._check_open()
        return await self._setup.snapshot()

    async def close(self) -> None:
        """End the container and remove all that belongs to it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for pool in self._pools.values():
            pool.close(f"sandbox {self.id} is closed")
        for pump in list(self._draining):
            pump.close()
        for task in self._cleaning:
            task.cancel()
        await self._setup.release()


def _exportable(name: str) -> bool:
    return _PLAIN_NAME.fullmatch(name) is not None and name not in _SHELLS_OWN


def _not_begun(said: bytes) -> tuple[int, bytes]:
    """Code and stderr of a command that no process could be had for.

    Raises:
        SandboxError: a process was there, but could not put the limits on itself.
    """
    if said:
        raise SandboxError(f"a command could not be started: {said.decode(errors='replace')}")
    return 126, b"no process could be started: the sandbox has as many as it may\n"
