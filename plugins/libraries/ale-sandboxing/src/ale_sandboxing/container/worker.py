"""The host's side of the shells in a container: workers run commands, the supervisor kills them."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from attrs import frozen

from ale.errors import SandboxDamagedError, SandboxError, SandboxLostError
from ale_sandboxing.container import script
from ale_sandboxing.container.mounted import mounts_of
from ale_sandboxing.container.stream import STDERR, STDOUT, Stream
from ale_sandboxing.shell.capture import Capture

_LATE_S = 0.01
"""Pause after each piece of output that no command waits for."""
_LOOKS = 100
_SIGNALS = 128
_OWN_ERROR = 2
"""Exit status of a shell that can't run at all, as one that was forbidden to open files."""
_LOOK_S = 0.05
_STUCK_S = 1.0
"""Pause after each piece of what a supervisor prints that can't be started any more."""
_MOST_AGAIN = 50
"""Times in a row that a supervisor is started again without a word from it."""
ANSWER_S = 20.0
"""Far above what a shell takes to answer, on a machine with far too much to do."""


class Job:
    """What a worker prints between two marks: the output of one command."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.mark = secrets.token_hex(16).encode()
        """Printed at the start and the end; new for each command, and known to none."""
        self.output = {STDOUT: Capture(limit), STDERR: Capture(limit)}
        self.begun: asyncio.Future[bool] = loop.create_future()
        """True once the command runs and carries its tag; False where it never started."""
        self.ended: asyncio.Future[int | None] = loop.create_future()
        """Its exit code; None when the worker was killed, or the connection was lost."""
        self.processes: frozenset[bytes] = frozenset()
        """All of the container, as the worker saw them at the end."""
        self._code: int | None = None
        self._open = {STDOUT, STDERR}

    def take(self, channel: int, words: Sequence[bytes]) -> bool:
        """What follows a mark; True at the end of this channel."""
        if words[:1] != [b"e"]:
            self.begin()
            return False
        if channel == STDOUT:
            self._code = int(words[1]) if b"".join(words[1:2]).isdigit() else None
            self.processes = frozenset(words[2:])
        self._open.discard(channel)
        if not self._open:
            self.end(self._code)
        return True

    def begin(self) -> None:
        """The command runs."""
        if not self.begun.done():
            self.begun.set_result(True)

    def end(self, code: int | None) -> None:
        """The command has ended, or will be heard of no more."""
        if not self.begun.done():
            self.begun.set_result(False)
        if not self.ended.done():
            self.ended.set_result(code)


class Channel:
    """Stdout or stderr of a worker, cut into the output of its jobs."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._jobs: list[Job] = []
        self._rest = b""

    @property
    def idle(self) -> bool:
        """No job waits for anything."""
        return not self._jobs

    def expect(self, job: Job) -> None:
        """From now on, output is this job's until its last mark. A job may be within another."""
        self._jobs.append(job)

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        data = self._rest + data
        while self._jobs:
            at, job = min((_found(data, job.mark), n) for n, job in enumerate(self._jobs))
            capture = self._jobs[-1].output[self._number]
            end = data.find(b"\n", at)
            if end < 0:
                keep = min(at, max(len(data) - len(self._jobs[0].mark) + 1, 0))
                capture.add(data[:keep])
                self._rest = data[keep:]
                return
            capture.add(data[:at])
            found = self._jobs[job]
            words, data = data[at + len(found.mark) : end].split(), data[end + 1 :]
            if found.take(self._number, words):
                del self._jobs[job:]
        self._rest = b""


def _found(data: bytes, mark: bytes) -> int:
    at = data.find(mark)
    return len(data) if at < 0 else at


class Shell(ABC):
    """A shell in the container, at the end of a stream, and what is sent to it first."""

    def __init__(self, stream: Stream, text: bytes) -> None:
        self._stream = stream
        stream.on_data = self._on_data
        stream.ended.add_done_callback(lambda ended: self._on_end(ended.result()))
        stream.send(text)

    @property
    def gone(self) -> "asyncio.Future[str]":
        """Why its stream has ended, once it has."""
        return self._stream.ended

    def send(self, text: bytes) -> None:
        """Send script, to it or to the shell that has taken its place."""
        self._stream.send(text)

    def close(self) -> None:
        """Close its stream, which ends it. May be called again."""
        self._stream.close()

    @abstractmethod
    def _on_data(self, channel: int, data: bytes) -> None:
        """It has printed something."""

    @abstractmethod
    def _on_end(self, why: str) -> None:
        """Its stream has ended."""


class Worker(Shell):
    """A shell that runs one command at a time.

    Args:
        exit_code: asks the engine for its exit code; None while it runs.
    """

    def __init__(self, stream: Stream, exit_code: Callable[[], Awaitable[int | None]]) -> None:
        self._exit_code = exit_code
        self._closed = False
        self.seen: frozenset[bytes] = frozenset()
        """Processes of the container that can't have its stdout or stderr."""
        self._channels = {number: Channel(number) for number in (STDOUT, STDERR)}
        self._jobs: set[Job] = set()
        super().__init__(stream, script.WORKER)

    def expect(self, limit: int) -> Job:
        """A job, whose mark the caller then makes the worker print."""
        job = Job(limit)
        for channel in self._channels.values():
            channel.expect(job)
        if self.gone.done():
            job.end(None)
        else:
            self._jobs.add(job)
            job.ended.add_done_callback(lambda _: self._jobs.discard(job))
        return job

    async def flush(self) -> None:
        """Throw away what it has still to print, and look which processes there are.

        Returns once it has answered, or is gone.
        """
        job = self.expect(0)
        self.send(b"end %b 0\n" % job.mark)
        await job.ended
        self.seen = job.processes

    async def was_killed(self) -> bool:
        """Has it been ended, from inside or here? Else its connection was lost."""
        if self._closed:
            return True
        for _ in range(_LOOKS):
            code = await self._exit_code()
            if code is not None:
                return code > _SIGNALS or code == _OWN_ERROR
            await asyncio.sleep(_LOOK_S)
        return False

    def _on_data(self, channel: int, data: bytes) -> None:
        if channel not in self._channels:
            return
        if self._channels[channel].idle:
            # Of a process that a command has left behind: it must neither block nor be in the way.
            self._stream.pause(_LATE_S)
        self._channels[channel].feed(data)

    def _on_end(self, why: str) -> None:
        for job in list(self._jobs):
            job.end(None)

    def close(self) -> None:
        """End it. May be called again."""
        self._closed = True
        super().close()


@frozen(kw_only=True)
class Handshake:
    """The first message of a supervisor: facts about its container."""

    uid: int
    gid: int
    bash: str | None
    """Its path."""
    mounts: frozenset[str] = frozenset()
    """Mount points below which the engine's archive calls see other files than commands."""

    @classmethod
    def parse(cls, line: bytes, mounts: Sequence[bytes] = ()) -> "Handshake":
        """Read the line that its script ends with.

        Args:
            mounts: the mount points that it named before.
        """
        _, uid, gid, base, *bash = line.decode().split()
        if base != "unlimited":
            raise SandboxError(
                "the engine limits the resident set (RLIMIT_RSS) of containers; that limit is "
                "needed to tell commands apart. Remove it from the engine's default ulimits"
            )
        return cls(
            uid=int(uid), gid=int(gid), bash=bash[0] if bash else None, mounts=mounts_of(mounts)
        )


class StuckError(SandboxDamagedError, TimeoutError):
    """Something inside keeps a shell from starting."""


class NoAnswerError(SandboxLostError, TimeoutError):
    """The supervisor does not answer; nobody can tell whether something inside stops it."""


Numbers = tuple[int, int]
_STUCK = "something inside keeps the supervisor from starting"


class Supervisor(Shell):
    """The shell that kills commands. Questions are answered one after the other.

    When its stream has ended, its container has, or can't be reached.
    """

    def __init__(self, stream: Stream) -> None:
        self._rest = b""
        self._again = 0
        self._mounts: list[bytes] = []
        self._asked: deque[tuple[bytes, asyncio.Future[Numbers]]] = deque()
        self.handshake: asyncio.Future[Handshake] = asyncio.get_running_loop().create_future()
        self.handshake.add_done_callback(_seen)
        super().__init__(stream, script.SUPERVISOR)

    async def ask(self, question: bytes) -> Numbers:
        """The two numbers of its answer.

        Raises:
            StuckError: something inside keeps it from starting.
            NoAnswerError: it does not answer.
            SandboxError: the container has ended.
        """
        if self.gone.done():
            raise SandboxError(self.gone.result())
        if self._is_stuck:
            raise StuckError(_STUCK)
        answer: asyncio.Future[Numbers] = asyncio.get_running_loop().create_future()
        self._asked.append((question, answer))
        self.send(question)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(answer)
        except StuckError:
            raise
        except TimeoutError:
            raise NoAnswerError(f"the supervisor did not answer in {ANSWER_S:g} s") from None

    @property
    def _is_stuck(self) -> bool:
        return self._again > _MOST_AGAIN

    def _on_data(self, channel: int, data: bytes) -> None:
        if self._is_stuck:
            self._stream.pause(_STUCK_S)
        elif channel == STDOUT:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._on_line(line)

    def _on_line(self, line: bytes) -> None:
        if self._is_stuck:
            return
        if line == b"again":
            self._again += 1
            if self._is_stuck:
                self._fail(StuckError(_STUCK))
                return
            # It was killed, with whatever it had read of what was asked.
            self.send(script.SUPERVISOR + b"".join(asked for asked, _ in self._asked))
            return
        self._again = 0
        if line.startswith(b"mount /") and not self.handshake.done():
            self._mounts.append(line.removeprefix(b"mount "))
        elif line.startswith(b"handshake") and not self.handshake.done():
            try:
                self.handshake.set_result(Handshake.parse(line, self._mounts))
            except SandboxError as error:
                self.handshake.set_exception(error)
        elif line.startswith(b"k ") and self._asked:
            _, first, second = line.split()
            _, answer = self._asked.popleft()
            answer.set_result((int(first), int(second)))

    def _on_end(self, why: str) -> None:
        self._fail(SandboxError(why))

    def _fail(self, error: Exception) -> None:
        waiting: list[asyncio.Future[Any]] = [
            self.handshake,
            *(answer for _, answer in self._asked),
        ]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # not everybody waits for it


def _seen(future: "asyncio.Future[Handshake]") -> None:
    """Mark its exception as retrieved: nobody may be waiting for it any more."""
    if not future.cancelled():
        future.exception()
