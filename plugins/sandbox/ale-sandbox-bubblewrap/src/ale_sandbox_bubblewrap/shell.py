"""A session's shell in the sandbox, and the pipes between it and this process.

The pipes are named ones, in a folder that is bound read-only into the sandbox and can't be listed
there. The shell is a program that may be run but not read, so that its memory, which holds the
names, is closed to every other process.
"""

import asyncio
import os
import shlex
from collections.abc import Callable
from typing import Protocol

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.types import ExecResult
from ale_sandbox_bubblewrap.client import Job, StartError
from ale_sandbox_bubblewrap.control import Control
from ale_sandbox_shell.channel import Lines, Writer
from ale_sandbox_shell.output import Capture, Pump
from ale_sandbox_shell.session import File, Outlet, ShellSession
from ale_sandbox_shell.text import as_bytes


class ShellOwner(Protocol):
    """What a shell needs of its sandbox."""

    @property
    def control(self) -> Control:
        """The folder of its pipes."""
        ...

    async def end_command(self, command: int) -> None:
        """Kill all that the n-th command started."""
        ...

    def finish(self, pump: Pump) -> Capture:
        """End a pump; keep draining its pipe while a background process holds it open."""
        ...


class BubblewrapShell:
    """See `ale_sandbox_shell.session.Shell`."""

    def __init__(self, owner: ShellOwner, job: Job, script: int, number: int) -> None:
        self._owner = owner
        self._job = job
        self._number = number
        self._script = Writer(script)
        self._report, reader, self._guard = owner.control.pipe()
        self.on_line: Callable[[bytes], object] = lambda _: None
        self._lines = Lines(reader, lambda line: self.on_line(line))
        self.report = owner.control.inside(self._report)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        job.ended.add_done_callback(self._on_end)

    def _on_end(self, ended: "asyncio.Future[int | StartError]") -> None:
        self._lines.take()  # a report may have arrived just before the end
        self._lines.close()
        self._script.close()
        os.close(self._guard)
        self._owner.control.drop(self._report)
        error = ended.exception()
        code = 1 if error is not None else ended.result()
        if isinstance(code, StartError):
            error = SandboxError(f"could not open a session: {os.strerror(code.errno)}")
        if error is not None:
            self.ended.set_exception(error)
            self.ended.exception()  # whoever awaits it gets it
        elif isinstance(code, int):
            self.ended.set_result(code)

    @property
    def pid(self) -> int | None:
        """Its process id on the host, once it is known."""
        return self._job.pid

    def send(self, script: bytes) -> None:
        """Send it script to run."""
        self._script.send(script)

    def outlet(self, limit: int) -> Outlet:
        """A pipe for at most `limit` bytes."""
        name, reader, guard = self._owner.control.pipe()

        def release() -> None:
            os.close(guard)
            self._owner.control.drop(name)

        return Outlet(
            pump=Pump(reader, limit), path=self._owner.control.inside(name), release=release
        )

    def script(self, text: bytes) -> File:
        """A file for the shell to read."""
        name = self._owner.control.file(text)
        return File(
            path=self._owner.control.inside(name), release=lambda: self._owner.control.drop(name)
        )

    def finish(self, pump: Pump) -> Capture:
        """End a pump."""
        return self._owner.finish(pump)

    async def end(self) -> None:
        """Kill the shell and all that it has started."""
        if not self.ended.done():
            await self._owner.end_command(self._number)
            await asyncio.wait([self.ended])


class BubblewrapSession:
    """A session that can move with its sandbox to a new layer."""

    def __init__(
        self, shell: BubblewrapShell, *, bash: bool, monotonic: Callable[[], float]
    ) -> None:
        self._shell = shell
        self._inner = ShellSession(shell, resets_lines=bash, monotonic=monotonic)
        self._busy = 0
        self.switch_lock = asyncio.Lock()
        """Held while the sandbox changes its layer."""

    def start(self, script: str) -> None:
        """Send lines for the shell to run before the first command."""
        self._inner.start(as_bytes(script))

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in the shell. See `ale.protocols.Session.run`."""
        if self.switch_lock.locked():
            async with self.switch_lock:
                pass
        self._busy += 1
        try:
            return await self._inner.run(
                command, timeout_s=timeout_s, max_output_bytes=max_output_bytes
            )
        finally:
            self._busy -= 1

    @property
    def idle(self) -> bool:
        """No command runs or waits."""
        return not self._busy

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        return self._inner.closed

    async def close(self) -> None:
        """End the shell and what it started. May be called again."""
        await self._inner.close()

    @property
    def started(self) -> bool:
        """Its shell has been started."""
        return self._shell.pid is not None

    def folder(self) -> str | None:
        """Its current folder, as a path in the sandbox; None: it has been removed."""
        path = os.readlink(f"/proc/{self._shell.pid}/cwd")  # noqa: PTH115
        return None if path.endswith(" (deleted)") else path

    def enter(self, folder: str) -> None:
        """Make it enter its current folder again: the old one is of the old layer."""
        real = shlex.quote(folder)
        self._shell.send(
            b"{ __ale=${OLDPWD-};"
            b'command [ "${PWD-}" -ef %b ] && command cd -L -- "$PWD" || command cd -P -- %b;'
            b"OLDPWD=$__ale; unset __ale; } >/dev/null 2>&1 || :\n" % ((as_bytes(real),) * 2)
        )
