"""A persistent shell whose framing no command can break.

The shell reads its script from a pipe that no command sees. Each command is one quoted argument
of ``eval``, so that a syntax error, an open quote or a here-document is the command's own affair::

    command eval ' COMMAND' </dev/null >OUT 2>ERR
    command echo "$?" N >REPORT

The report has a line of its own, because some errors (``return 1 2``) make bash throw away the
rest of the line.

OUT, ERR and REPORT are pipes of this process, opened by path (``/proc/PID/fd/N``) for the length
of one command: none stands open for a command to inherit, to close or to write to by accident,
what a background job writes later goes to the pipe of its own command, and the end of a pipe
tells that nobody holds it any more. N counts the commands.
"""

import asyncio
import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.types import ExecResult
from ale_sandbox_local.output import Capture, Pump
from ale_sandbox_local.spawn import LONGEST_ARGUMENT, Child, as_bytes

KILLED = 137
NUL_REFUSED = b"a command can't contain a NUL byte\n"


class Home(Protocol):
    """What a session needs of its sandbox."""

    async def end_command(self, command: int, child: Child) -> None:
        """Kill the n-th command, `child`, and all that it started."""
        ...

    def finish(self, pump: Pump) -> Capture:
        """End a pump; where a background process still holds its pipe, look after it."""
        ...

    @property
    def closed(self) -> bool:
        """The sandbox is closed."""
        ...


def _path(descriptor: int) -> bytes:
    """Where another process of this user can open one of ours."""
    return b"/proc/%d/fd/%d" % (os.getpid(), descriptor)


class LocalSession:
    """One shell. Commands run one after the other; a second caller waits for the first."""

    def __init__(
        self,
        home: Home,
        child: Child,
        *,
        number: int,
        script: int,
        file: Path,
        resets_lines: bool,
        monotonic: Callable[[], float],
    ) -> None:
        self._home = home
        self._child = child
        self._number = number
        self._script = Writer(script)
        self._file = file
        self._report, self._reporter = os.pipe()
        os.set_blocking(self._report, False)
        self._prefix = b"LINENO=0;" if resets_lines else b""
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._count = 0
        self._last = 0
        self._ended = False
        self._released = False
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[int | None] | None = None
        self._loop.add_reader(self._report, self._on_report)
        child.ended.add_done_callback(self._on_end)
        self._greeted = False

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        return self._ended

    def start(self, script: str) -> None:
        """Send lines for the shell to run before the first command."""
        self._script.send(as_bytes(script) + b"command echo 0 0" + self._end_of_frame())

    def _end_of_frame(self) -> bytes:
        return b" >%b||exit 126\n" % _path(self._reporter)

    def _on_report(self) -> None:
        try:
            lines = os.read(self._report, 4096).split(b"\n")
        except BlockingIOError:
            return
        for line in lines:
            words = line.split()
            if words == [b"0", b"0"]:
                self._greeted = True
            elif len(words) == 2 and words[1] == b"%d" % self._count:
                self._settle(int(words[0]))

    def _on_end(self, ended: "asyncio.Future[int]") -> None:
        self._on_report()  # a report may have come just before the end
        self._ended = True
        self._release()
        self._settle(None)

    def _settle(self, code: int | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(code)

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in the shell. See `ale.protocols.Session.run`."""
        async with self._lock:
            if self._ended:
                raise SandboxError("the session is closed")
            if "\0" in command:
                return ExecResult(exit_code=126, stdout=b"", stderr=NUL_REFUSED)
            started = self._monotonic()
            with ExitStack() as writers, ExitStack() as pumps:
                out, out_path = self._pipe(writers, pumps, max_output_bytes)
                err, err_path = self._pipe(writers, pumps, max_output_bytes)
                self._send(command, out_path, err_path)
                code, timed_out = await self._outcome(timeout_s)
                writers.close()  # so that the end of each pipe can be seen
                pumps.pop_all()
            return self._result(code, timed_out, out, err, started)

    def _pipe(self, writers: ExitStack, pumps: ExitStack, limit: int) -> tuple[Pump, bytes]:
        """A pump, and the path to write to it for as long as `writers` is open."""
        reader, writer = os.pipe()
        writers.callback(os.close, writer)
        os.set_blocking(reader, False)
        pump = Pump(reader, limit)
        pumps.callback(pump.close)
        return pump, _path(writer)

    def _send(self, command: str, out: bytes, err: bytes) -> None:
        self._count += 1
        self._waiting = self._loop.create_future()
        text = as_bytes(command)
        if len(text) > LONGEST_ARGUMENT:
            # The shell reads a pipe byte by byte and a file in one go.
            self._file.write_bytes(text + b"\n")
            call = b"command . " + as_bytes(shlex.quote(str(self._file)))
        else:
            # The blank keeps a command that begins with "-" from being an option of eval.
            call = b"command eval ' " + text.replace(b"'", b"'\"'\"'") + b"'"
        frame = b' </dev/null >%b 2>%b\ncommand echo "$?" %d' % (out, err, self._count)
        self._script.send(self._prefix + self._status() + call + frame + self._end_of_frame())

    def _status(self) -> bytes:
        """Give ``$?`` back what the last command left there: the report has overwritten it.

        In front of ``||`` a failing command does not end a shell under ``set -e``.
        """
        if not self._last:
            return b""
        return b"__ale() { unset -f __ale; return %d; }; __ale || " % self._last

    async def _outcome(self, timeout_s: float | None) -> tuple[int | None, bool]:
        assert self._waiting is not None
        try:
            async with asyncio.timeout(timeout_s):
                return await self._waiting, False
        except TimeoutError:
            await self.close()
            return KILLED, True
        except asyncio.CancelledError:
            await self.close()
            raise

    def _result(
        self, code: int | None, timed_out: bool, out: Pump, err: Pump, started: float
    ) -> ExecResult:
        stdout, stderr = self._home.finish(out), self._home.finish(err)
        if code is None:
            if not self._greeted and not timed_out:
                raise SandboxError(
                    f"the shell has ended before its first command; it may not be allowed to open "
                    f"/proc/{os.getpid()}/fd"
                )
            if self._home.closed:
                raise SandboxError("the sandbox was closed while the command ran")
            code = self._child.ended.result()
        self._last = code
        return ExecResult(
            exit_code=code,
            stdout=stdout.value(),
            stderr=stderr.value(),
            timed_out=timed_out,
            truncated=stdout.truncated or stderr.truncated,
            duration_s=self._monotonic() - started,
        )

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        self._loop.remove_reader(self._report)
        os.close(self._report)
        os.close(self._reporter)
        self._script.close()

    async def close(self) -> None:
        """End the shell and what it started. May be called again."""
        await self._home.end_command(self._number, self._child)
        await asyncio.shield(self._child.ended)


class Writer:
    """Writes to a pipe without blocking the loop; what does not fit waits its turn."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""
        self._open = True
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)

    def send(self, data: bytes) -> None:
        """Queue `data`. To a shell that has ended it goes nowhere: its end is told elsewhere."""
        waiting = bool(self._pending)
        self._pending += data
        if not waiting:
            self._flush()
            if self._pending:
                self._loop.add_writer(self._descriptor, self._on_writable)

    def _flush(self) -> None:
        try:
            self._pending = self._pending[os.write(self._descriptor, self._pending) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._pending = b""

    def _on_writable(self) -> None:
        self._flush()
        if not self._pending:
            self._loop.remove_writer(self._descriptor)

    def close(self) -> None:
        """Let go of the pipe. May be called again."""
        if self._open:
            self._open = False
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
