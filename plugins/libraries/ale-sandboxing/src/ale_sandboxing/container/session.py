"""A persistent shell in a container whose framing no command can break.

Two shells: the *holder*, a worker's command, has the stream's stdout and stderr, starts the
session's own shell and waits for it. That one reads its script from the stream. Each command is one
quoted argument of ``eval``, so that a syntax error or an open quote stays within the command::

    command eval ' COMMAND' </dev/null >/proc/HOLDER/fd/1 2>/proc/HOLDER/fd/3
    command echo MARK e "$?" /proc/[0-9]* >/proc/HOLDER/fd/1
    command echo MARK e >/proc/HOLDER/fd/3

Its outputs are opened by path for the length of one command: none is open for a command to inherit
or close by accident. A background job keeps what it has; where a command leaves one, the commands
after it get another holder, on a stream of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.sandboxes import NUL_IN_COMMAND, refused
from ale.types import ExecResult
from ale_sandboxing.container import worker
from ale_sandboxing.container.commands import Commands, Running
from ale_sandboxing.container.stream import STDERR, STDOUT
from ale_sandboxing.container.worker import Job
from ale_sandboxing.shell.capture import KILLED, result_of
from ale_sandboxing.shell.text import as_bytes, quoted, restored

# A shell says on its stderr how its child was killed: the stream's is its descriptor 3.
HOLD_AND_RUN = b'exec 3>&2 2>/dev/null; (exec "$@" >/dev/null 3>&-); exit $?'
# The last mark is written without a redirection: that would replace descriptor 1 for a moment, and
# the next command, which opens it once both marks are there, could get the wrong stream.
HOLD = b'exec 3>&2; read -r mark; echo "$mark e" >&3; echo $$; echo "$mark e 0"; read -r mark'
HOLDER_BYTES = 1000
"""Of a holder's own output: why it could not start."""


class NotStartedError(SandboxError):
    """The shell ended before its first command."""


class ContainerSession:
    """One shell. Commands run one after the other; a second caller waits for the first.

    Args:
        running: its holder, which has just begun.
        hold: starts another holder.
        resets_lines: the shell is bash, where ``LINENO=0`` makes line numbers the command's own.
        monotonic: seconds, for durations.
        note: what the first command's stderr begins with.
    """

    def __init__(
        self,
        commands: Commands,
        running: Running,
        hold: Callable[[], Awaitable[Running]],
        *,
        resets_lines: bool,
        monotonic: Callable[[], float],
        note: bytes = b"",
    ) -> None:
        self._note = note
        self._commands = commands
        self._running = running
        self._hold = hold
        self._prefix = b"LINENO=0;" if resets_lines else b""
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._last = 0
        self._seen: frozenset[bytes] = frozenset()
        self._holders = [running]
        self._holder = b""
        self._job: Job | None = None
        self._change: asyncio.Future[None] | None = None
        running.job.ended.add_done_callback(lambda _: self._on_end())

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        return self._running.job.ended.done()

    @property
    def processes(self) -> int:
        """How many processes it has itself: its shell and the holders."""
        return 0 if self.closed else 1 + len(self._holders)

    async def start(self) -> None:
        """Wait until the shell reads its script, and learn which process is its holder.

        Raises:
            NotStartedError: it has ended before.
            StuckError: it does not answer, although the container does.
            SandboxError: the container does not either.
        """
        job = self._expect(HOLDER_BYTES)
        self._running.worker.send(
            b"command echo $PPID >/proc/$PPID/fd/1\n" + _marks(job.mark, b"$PPID")
        )
        try:
            async with asyncio.timeout(worker.ANSWER_S):
                ended = await asyncio.shield(job.ended)
        except TimeoutError:
            await self._commands.threads()  # raises where the container is the reason
            raise worker.StuckError(
                f"the shell did not answer in {worker.ANSWER_S:g} s, although its container does"
            ) from None
        self._holder, self._seen = job.output[STDOUT].value().strip(), job.processes
        if ended is None:
            code = self._running.job.ended.result()
            said = self._running.job.output[STDERR].value().decode(errors="replace").strip()
            raise NotStartedError(
                f"the shell has ended with {code} before its first command{said and ': '}{said}"
            )

    def _expect(self, limit: int) -> Job:
        """The output of the next command, which ends without a code where the shell ends."""
        self._job = self._holders[-1].worker.expect(limit)
        if self.closed:
            self._job.end(None)
        return self._job

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in the shell. See `ale.protocols.Session.run`."""
        async with self._lock:
            if self._change is not None:
                await asyncio.shield(self._change)
            if self.closed:
                raise SandboxError("the session is closed")
            if "\0" in command:
                return refused(NUL_IN_COMMAND)
            started = self._monotonic()
            job = self._expect(max_output_bytes)
            job.output[STDERR].add(self._note)
            self._note = b""
            self._send(command, job.mark)
            timed_out = await self._wait(job, timeout_s)
            self._last = await self._code(job)
            if not timed_out:
                self._commands.note(self._last)
            if not self.closed and not job.processes <= self._seen:
                self._change = asyncio.ensure_future(self._change_holder(job.processes))
                self._change.add_done_callback(self._changed)
            return result_of(
                KILLED if timed_out else self._last,
                job.output[STDOUT],
                job.output[STDERR],
                timed_out=timed_out,
                duration_s=self._monotonic() - started,
            )

    def _send(self, command: str, mark: bytes) -> None:
        # The blank keeps a command that starts with "-" from being read as an option of eval.
        call = b"command eval " + quoted(b" " + as_bytes(command))
        outputs = b" </dev/null >/proc/%b/fd/1 2>/proc/%b/fd/3\n" % (self._holder, self._holder)
        text = self._prefix + restored(self._last) + call + outputs + _marks(mark, self._holder)
        self._running.worker.send(text)

    async def _wait(self, job: Job, timeout_s: float | None) -> bool:
        """Wait for a command's end; True where it did not end in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(job.ended)
        except TimeoutError:
            await self.close()
            return True
        except asyncio.CancelledError:
            await self.close()
            raise
        return False

    async def _code(self, job: Job) -> int:
        """The exit code of a command, or of the shell that it has ended."""
        if (code := await job.ended) is not None:
            return code
        code, _ = await self._commands.outcome(self._running, None)
        # All that the shell has printed comes before what the holder's worker prints at its end.
        await asyncio.wait([self._holders[-1].job.ended], timeout=worker.ANSWER_S)
        return code

    async def _change_holder(self, processes: frozenset[bytes]) -> None:
        """Leave the stream to what the last command has left running, where that writes to it."""
        if await self._commands.holds(self._running, self._holder):
            other = await self._hold()
            ready = other.worker.expect(HOLDER_BYTES)
            other.worker.send(ready.mark + b"\n")
            await ready.ended
            self._holders.append(other)
            self._holder = ready.output[STDOUT].value().strip()
            if self.closed:
                self._end_holders()
        self._seen = processes

    def _changed(self, change: "asyncio.Future[None]") -> None:
        if change.exception() is None:
            self._change = None  # else the next command raises it

    def _on_end(self) -> None:
        if self._job is not None:
            self._job.end(None)
        self._end_holders()

    def _end_holders(self) -> None:
        for other in self._holders[1:]:
            other.worker.send(b"\n")

    async def close(self) -> None:
        """End the shell and what it started. May be called again."""
        await self._commands.end(self._running)


def _marks(mark: bytes, holder: bytes) -> bytes:
    """Script that says on both streams of a process that a command has ended."""
    return (
        b'command echo %b e "$?" /proc/[0-9]* >/proc/%b/fd/1||exit 126\n'
        b"command echo %b e >/proc/%b/fd/3||exit 126\n"
    ) % (mark, holder, mark, holder)
