"""A persistent shell whose framing no command can break.

The shell reads its script from a pipe that no command sees. Each command is one quoted argument
of ``eval``, so that a syntax error, an open quote or a here-document stays within the command::

    command eval ' COMMAND' </dev/null >OUT 2>ERR
    command echo "$?" TOKEN >REPORT

The report has a line of its own, because some errors (``return 1 2``) make bash throw away the
rest of the line.

OUT, ERR and REPORT are pipes, opened by path for the length of one command: none is open for
a command to inherit, close or write to by accident; later output of a background job goes to the
pipe of its own command; end of file means that no process holds the pipe any more. TOKEN is new
for each command and never in its environment, arguments or output.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.sandboxes import NUL_IN_COMMAND, refused
from ale.types import ExecResult, replace
from ale_sandboxing.shell.capture import KILLED, Capture, result_of
from ale_sandboxing.shell.output import Pump
from ale_sandboxing.shell.text import LONGEST_ARGUMENT, as_bytes, quoted, restored

_READY = b"ready"
_TOKEN_BYTES = 8
"""Short, as the paths are: the shell reads its script byte by byte, each in a third of a us."""


@frozen
class Outlet:
    """A pipe for the output of one command."""

    pump: Pump
    path: bytes
    """What the shell opens to write to it."""
    release: Callable[[], object]
    """Called when the command has ended and nothing opens `path` any more."""


@frozen
class File:
    """A command too long for an argument."""

    path: bytes
    """What the shell reads it from."""
    release: Callable[[], object]


class Shell(Protocol):
    """A running shell, and what its session needs of the sandbox."""

    on_line: Callable[[bytes], object]
    """Called with each line of the pipe for results; the session sets it."""

    @property
    def report(self) -> bytes:
        """Path of the pipe for results; its lines go to `on_line`."""
        ...

    @property
    def ended(self) -> "asyncio.Future[int]":
        """Its exit code, 128 + n for signal n. A SandboxError where it can't be known."""
        ...

    def send(self, script: bytes) -> None:
        """Send it script to run."""
        ...

    def outlet(self, limit: int) -> Outlet:
        """A pipe for at most `limit` bytes."""
        ...

    def script(self, text: bytes) -> File:
        """A file for the shell to read."""
        ...

    def finish(self, pump: Pump) -> Capture:
        """End a pump; keep draining its pipe while a background process holds it open."""
        ...

    async def end(self) -> None:
        """Kill the shell and all that it has started."""
        ...


def frame(
    command: bytes | File, *, token: bytes, out: bytes, err: bytes, report: bytes, last: int
) -> bytes:
    """Script that makes a shell run one command and report its exit code.

    Args:
        command: at most `LONGEST_ARGUMENT` bytes; a longer one is in a file.
        token: comes after the code in the line of the report.
        out, err, report: paths of the pipes, as the shell sees them.
        last: the exit code of the command before it, which the report has overwritten.
    """
    if isinstance(command, File):
        call = b"command . " + command.path
    else:
        # The blank keeps a command that starts with "-" from being read as an option of eval.
        call = b"command eval " + quoted(b" " + command)
    streams = b' </dev/null >%b 2>%b\ncommand echo "$?" %b' % (out, err, token)
    return restored(last) + call + streams + _redirected(report)


def _redirected(report: bytes) -> bytes:
    return b" >%b||exit 126\n" % report


class ShellSession:
    """One shell. Commands run one after the other; a second caller waits for the first.

    Args:
        resets_lines: the shell is bash, where ``LINENO=0`` makes line numbers the command's own.
        monotonic: seconds, for durations.
        gate: while it is held, no command starts.
        note: what the first command's stderr begins with; asked when that has ended.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        resets_lines: bool,
        monotonic: Callable[[], float],
        gate: asyncio.Lock | None = None,
        note: Callable[[], str] = str,
    ) -> None:
        self._note: Callable[[], str] | None = note
        self._shell = shell
        self._prefix = b"LINENO=0;" if resets_lines else b""
        self._monotonic = monotonic
        self._gate = gate
        self._lock = asyncio.Lock()
        self._busy = 0
        self._expected = b""
        self._last = 0
        self._is_ready = False
        self._waiting: asyncio.Future[int | None] | None = None
        shell.on_line = self._on_report_line
        shell.ended.add_done_callback(self._on_end)

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        return self._shell.ended.done()

    @property
    def idle(self) -> bool:
        """No command runs or waits for another."""
        return not self._busy

    def start(self, script: bytes = b"") -> None:
        """Send lines for the shell to run before the first command."""
        report = _redirected(self._shell.report)
        self._shell.send(script + b"command echo 0 " + _READY + report)

    def _on_report_line(self, line: bytes) -> None:
        """Take a line that came through the report pipe."""
        words = line.split()
        if words == [b"0", _READY]:
            self._is_ready = True
        elif len(words) == 2 and self._expected and words[1] == self._expected:
            self._finish_command(int(words[0]))

    def _on_end(self, ended: "asyncio.Future[int]") -> None:
        self._finish_command(None)

    def _finish_command(self, code: int | None) -> None:
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
        if self._gate is not None and self._gate.locked():
            async with self._gate:
                pass
        self._busy += 1
        try:
            async with self._lock:
                return await self._run(command, timeout_s, max_output_bytes)
        finally:
            self._busy -= 1

    async def _run(self, command: str, timeout_s: float | None, limit: int) -> ExecResult:
        if self.closed:
            raise SandboxError("the session is closed")
        if "\0" in command:
            return refused(NUL_IN_COMMAND)
        started, ended = self._monotonic(), False
        outlets: list[Outlet] = []
        file: File | None = None
        try:
            for _ in range(2):
                outlets.append(self._shell.outlet(limit))
            out, err = outlets
            text = as_bytes(command)
            if len(text) > LONGEST_ARGUMENT:
                file = self._shell.script(text + b"\n")
            self._send(text, file, out.path, err.path)
            code, timed_out = await self._outcome(timeout_s)
            ended = True
        finally:
            if file is not None:
                file.release()
            for outlet in outlets:
                outlet.release()  # so that the end of its pipe can be seen
                if not ended:
                    outlet.pump.close()
        return self._result(code, timed_out, out.pump, err.pump, started)

    def _send(self, text: bytes, file: File | None, out: bytes, err: bytes) -> None:
        self._expected = secrets.token_urlsafe(_TOKEN_BYTES).encode()
        self._waiting = asyncio.get_running_loop().create_future()
        framed = frame(
            text if file is None else file,
            token=self._expected,
            out=out,
            err=err,
            report=self._shell.report,
            last=self._last,
        )
        self._shell.send(self._prefix + framed)

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
        finally:
            self._expected = b""

    def _result(
        self, code: int | None, timed_out: bool, out: Pump, err: Pump, started: float
    ) -> ExecResult:
        stdout, stderr = self._shell.finish(out), self._shell.finish(err)
        if code is None:
            code = self._shell.ended.result()
            if not self._is_ready and not timed_out:
                raise SandboxError(
                    f"the shell has ended with {code} before its first command; it may not be "
                    f"allowed to open {self._shell.report.decode(errors='replace')}"
                )
        self._last = code
        result = result_of(
            code, stdout, stderr, timed_out=timed_out, duration_s=self._monotonic() - started
        )
        note, self._note = self._note, None
        noted = b"" if note is None else note().encode()
        return replace(result, stderr=noted + result.stderr) if noted else result

    async def close(self) -> None:
        """End the shell and what it started. May be called again."""
        await self._shell.end()
