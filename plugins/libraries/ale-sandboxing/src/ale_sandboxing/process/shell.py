"""A session's shell on the host's kernel, and the pipes between it and this process."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from attrs import frozen

from ale.errors import SandboxDamagedError, SandboxError
from ale_sandboxing.shell.capture import Capture
from ale_sandboxing.shell.channel import Lines, Writer
from ale_sandboxing.shell.output import Pump
from ale_sandboxing.shell.session import File, Outlet

_PIPES_OF_A_COMMAND = 2


@frozen
class Pipe:
    """A pipe that a shell opens by path to write to."""

    path: bytes
    reader: int
    """Its reading end, which does not block."""
    release: Callable[[], object]
    """Called when nothing opens `path` any more: then the end of the pipe can be seen."""


class Pipes(Protocol):
    """Makes pipes and files for the shells of one sandbox."""

    def pipe(self) -> Pipe:
        """A new pipe, which does not end before it is released."""
        ...

    def file(self, text: bytes) -> File:
        """A file that a shell can read."""
        ...


class HostShell:
    """See `ale_sandboxing.shell.session.Shell`.

    Args:
        script: the pipe that it reads.
        running: done when its process has ended.
        kill: ends the process and all that it has started, and waits.
        closed: tells whether the sandbox is closed.
        finish: the output of a pump that has nothing more to read.
    """

    def __init__(
        self,
        script: int,
        pipes: Pipes,
        running: "asyncio.Future[int]",
        *,
        kill: Callable[[], Awaitable[None]],
        closed: Callable[[], bool],
        finish: Callable[[Pump], Capture],
    ) -> None:
        self._script = Writer(script)
        self._pipes = pipes
        self._kill = kill
        self._closed = closed
        self.finish = finish
        self._spare: list[Pipe] = []
        self._report = self._pipes.pipe()
        self.report = self._report.path
        self.on_line: Callable[[bytes], object] = lambda _: None
        self._lines = Lines(self._report.reader, lambda line: self.on_line(line))
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        running.add_done_callback(self._on_end)

    def _on_end(self, ended: "asyncio.Future[int]") -> None:
        self._lines.take()  # a report may have arrived just before the end
        self._lines.close()
        self._script.close()
        self._report.release()
        while self._spare:
            pipe = self._spare.pop()
            pipe.release()
            os.close(pipe.reader)
        error = ended.exception()
        if self._closed():
            error = SandboxError("the sandbox was closed while the command ran")
        elif error is not None and not isinstance(error, SandboxError):
            # Its program, or the way there, is what commands made of it.
            error = SandboxDamagedError(f"could not open a session: {error}")
        if error is None:
            self.ended.set_result(ended.result())
        else:
            self.ended.set_exception(error)
            self.ended.exception()  # whoever awaits it gets it; nobody has to

    def send(self, script: bytes) -> None:
        """Send it script to run."""
        self._script.send(script)
        self._loop.call_soon(self._prepare)

    def _prepare(self) -> None:
        """Make the pipes of the next command while the shell is busy with this one."""
        # Where none can be made now, `outlet` tries again and fails loudly.
        with contextlib.suppress(OSError):
            while not self.ended.done() and len(self._spare) < _PIPES_OF_A_COMMAND:
                self._spare.append(self._pipes.pipe())

    def outlet(self, limit: int) -> Outlet:
        """A pipe for at most `limit` bytes."""
        pipe = self._spare.pop() if self._spare else self._pipes.pipe()
        return Outlet(Pump(pipe.reader, limit), pipe.path, pipe.release)

    def script(self, text: bytes) -> File:
        """A file for the shell to read."""
        return self._pipes.file(text)

    async def end(self) -> None:
        """Kill the shell and all that it has started."""
        if not self.ended.done():
            await self._kill()
            await asyncio.wait([self.ended])
