"""Output of a command: read without blocking, capped to head and tail, drained to the end."""

import array
import asyncio
import fcntl
import os
import termios
from collections.abc import Callable

from ale.types import ExecResult

_CHUNK = 1 << 16
_READS_PER_TURN = 16
_DRAIN_PAUSE_S = 0.01


class Capture:
    """The first half and the last half of a stream, in memory that does not grow with it."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Add the next piece."""
        self._total += len(data)
        space = self._head_limit - len(self._head)
        if space > 0:
            self._head += data[:space]
            data = data[space:]
        self._tail += data
        if len(self._tail) > self._tail_limit + 4 * _CHUNK:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def truncated(self) -> bool:
        """Part of the middle was dropped."""
        return self._total > self._head_limit + self._tail_limit

    def value(self) -> bytes:
        """Head and tail, at most the limit."""
        start = max(0, len(self._tail) - self._tail_limit)
        return bytes(self._head + self._tail[start:])


class Pump:
    """Moves the bytes of one pipe into a `Capture` until its end.

    A background process may hold the pipe open after its command has ended. `finish` reads what
    is available by then; later output is read slowly and dropped, so that the process neither
    blocks nor gets SIGPIPE.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._capture = Capture(limit)
        self._loop = asyncio.get_running_loop()
        self._on_end: Callable[[Pump], object] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._finished = False
        self.open = True
        # Soon, not now: the command starts in the meantime.
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self.open and not self._finished:
            self._loop.add_reader(self._descriptor, self._ready)

    def _ready(self) -> None:
        for _ in range(_READS_PER_TURN):
            data = self._read(_CHUNK)
            if not data:
                return
            self._capture.add(data)
            if len(data) < _CHUNK:
                return

    def _read(self, size: int) -> bytes:
        """Empty: nothing available, or end of file, after which the pump is closed."""
        try:
            data = os.read(self._descriptor, size)
        except BlockingIOError:
            return b""
        if not data:
            self.close()
        return data

    def finish(self, on_end: Callable[["Pump"], object]) -> Capture:
        """Read what is available; `open` stays True while another process holds the writing end.

        Args:
            on_end: called once with this pump when the end comes later.
        """
        self._finished = True
        data = self._read(_CHUNK) if self.open else b""
        self._capture.add(data)
        # No more than is available now: a background process may write for ever.
        left = self._waiting() if len(data) == _CHUNK else 0
        while left > 0 and (more := self._read(min(left, _CHUNK))):
            self._capture.add(more)
            left -= len(more)
        if data and self.open:
            self._capture.add(self._read(1))  # detects end of file
        if self.open:
            self._on_end = on_end
            self._loop.remove_reader(self._descriptor)
            self._loop.add_reader(self._descriptor, self._drop)
        return self._capture

    def _waiting(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, count)
        return count[0]

    def _drop(self) -> None:
        if self._read(_CHUNK):
            self._loop.remove_reader(self._descriptor)
            self._pause = self._loop.call_later(_DRAIN_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._descriptor, self._drop)

    def close(self) -> None:
        """Close the pipe. May be called again."""
        if not self.open:
            return
        self.open = False
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        if self._on_end is not None:
            self._on_end(self)


class Drains:
    """Pumps whose pipes background processes still hold open, drained until the sandbox closes."""

    def __init__(self) -> None:
        self._pumps: set[Pump] = set()
        self._open = True

    def finish(self, pump: Pump) -> Capture:
        """End a pump; keep draining its pipe while another process holds it open."""
        capture = pump.finish(self._pumps.discard)
        if not self._open:
            pump.close()
        elif pump.open:
            self._pumps.add(pump)
        return capture

    def close(self) -> None:
        """Close all of them, and those added later."""
        self._open = False
        for pump in list(self._pumps):
            pump.close()


def result_of(
    code: int, stdout: Capture, stderr: Capture, *, timed_out: bool, duration_s: float
) -> ExecResult:
    """The result of a command that has ended with `code`."""
    return ExecResult(
        exit_code=code,
        stdout=stdout.value(),
        stderr=stderr.value(),
        timed_out=timed_out,
        truncated=stdout.truncated or stderr.truncated,
        duration_s=duration_s,
    )
