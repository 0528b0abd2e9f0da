"""The shell of a session, at the end of a named pipe."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from ale.errors import SandboxError
from ale_sandbox_container.pipes import PipeFolder, new_name
from ale_sandbox_container.worker import Job
from ale_sandbox_shell.channel import Lines, Writer
from ale_sandbox_shell.output import Capture, Pump
from ale_sandbox_shell.session import KILLED, File, Outlet


class ContainerShell:
    """See `ale_sandbox_shell.session.Shell`."""

    def __init__(self, pipes: PipeFolder, finish: Callable[[Pump], Capture]) -> None:
        self._pipes = pipes
        self._finish = finish
        self._names = (new_name(), new_name())
        self._script = Writer(pipes.writer(self._names[0]))
        # Open for writing too: the shell opens and closes it for each result.
        path = pipes.pipe(self._names[1], 0o622)
        self._report = Lines(
            os.open(path, os.O_RDWR | os.O_NONBLOCK), lambda line: self.on_line(line)
        )
        self.on_line: Callable[[bytes], object] = lambda _: None
        self._end: Callable[[], Awaitable[None]] | None = None
        self._closed: Callable[[], bool] = lambda: False
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def stdin(self) -> bytes:
        """Path of the pipe that it reads script from."""
        return self._pipes.inside(self._names[0])

    @property
    def report(self) -> bytes:
        """Path of the pipe for its results."""
        return self._pipes.inside(self._names[1])

    def attach(
        self, job: Job, *, end: Callable[[], Awaitable[None]], closed: Callable[[], bool]
    ) -> None:
        """The worker's job that runs it, how to kill it, and whether its sandbox is closed."""
        self._end = end
        self._closed = closed
        job.begun.add_done_callback(lambda _: self._pipes.forget(self._names[0]))
        job.ended.add_done_callback(self._on_end)

    def _on_end(self, ended: "asyncio.Future[tuple[int, ...] | None]") -> None:
        self._report.take()  # a result may have come just before the end
        self.close()
        numbers = ended.result()
        if self._closed():
            self.ended.set_exception(SandboxError("the sandbox was closed while the command ran"))
            self.ended.exception()  # a session that nobody waits for
        else:
            self.ended.set_result(KILLED if numbers is None else numbers[0])

    def send(self, script: bytes) -> None:
        """Send it script to run."""
        self._script.send(script)

    def outlet(self, limit: int) -> Outlet:
        """A pipe for the output of one command."""
        return self._pipes.outlet(limit)

    def script(self, text: bytes) -> File:
        """A file that it can read."""
        return self._pipes.file(text)

    def finish(self, pump: Pump) -> Capture:
        """End a pump."""
        return self._finish(pump)

    async def end(self) -> None:
        """Kill it and all that it has started."""
        assert self._end is not None
        await self._end()
        # The event loop may call `_on_end` only after this.
        await asyncio.wait([self.ended])

    def close(self) -> None:
        """Close its pipes. May be called again."""
        self._pipes.forget(*self._names)
        self._script.close()
        self._report.close()
