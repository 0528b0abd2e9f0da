"""A session's shell, and the pipes between it and this process.

They are pipes of this process, which the shell opens as ``/proc/PID/fd/N``.
"""

import asyncio
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ale.errors import SandboxError
from ale_sandbox_process.spawn import Child
from ale_sandbox_shell.channel import Lines, Writer
from ale_sandbox_shell.output import Capture, Pump
from ale_sandbox_shell.session import File, Outlet
from ale_sandbox_shell.text import as_bytes


class ShellOwner(Protocol):
    """What a shell needs of its sandbox."""

    async def end_command(self, command: int, child: Child) -> None:
        """Kill the n-th command, `child`, and all that it started."""
        ...

    def finish(self, pump: Pump) -> Capture:
        """End a pump; keep draining its pipe while a background process holds it open."""
        ...

    @property
    def closed(self) -> bool:
        """The sandbox is closed."""
        ...


def _path(descriptor: int) -> bytes:
    """Where another process of this user can open one of ours."""
    return b"/proc/%d/fd/%d" % (os.getpid(), descriptor)


class LocalShell:
    """See `ale_sandbox_shell.session.Shell`.

    Args:
        child: the shell, which is the `number`-th command of its sandbox.
        script: the pipe that it reads.
        file: where to put a command that is too long for an argument.
    """

    def __init__(
        self, owner: ShellOwner, child: Child, *, number: int, script: int, file: Path
    ) -> None:
        self._owner = owner
        self._child = child
        self._number = number
        self._script = Writer(script)
        self._file = file
        reader, self._reporter = os.pipe()
        self.report = _path(self._reporter)
        self.on_line: Callable[[bytes], object] = lambda _: None
        self._lines = Lines(reader, lambda line: self.on_line(line))
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        child.ended.add_done_callback(self._on_end)

    def _on_end(self, ended: "asyncio.Future[int]") -> None:
        self._lines.take()  # a report may have arrived just before the end
        self._lines.close()
        self._script.close()
        os.close(self._reporter)
        if self._owner.closed:
            self.ended.set_exception(SandboxError("the sandbox was closed while the command ran"))
            self.ended.exception()  # whoever awaits it gets it; nobody has to
        else:
            self.ended.set_result(ended.result())

    def send(self, script: bytes) -> None:
        """Send it script to run."""
        self._script.send(script)

    def outlet(self, limit: int) -> Outlet:
        """A pipe for at most `limit` bytes."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        return Outlet(
            pump=Pump(reader, limit), path=_path(writer), release=lambda: os.close(writer)
        )

    def script(self, text: bytes) -> File:
        """A file for the shell to read."""
        self._file.write_bytes(text)
        path = as_bytes(shlex.quote(str(self._file)))
        return File(path=path, release=lambda: self._file.unlink(missing_ok=True))

    def finish(self, pump: Pump) -> Capture:
        """End a pump."""
        return self._owner.finish(pump)

    async def end(self) -> None:
        """Kill the shell and all that it has started."""
        await self._owner.end_command(self._number, self._child)
        await asyncio.wait([self.ended])
