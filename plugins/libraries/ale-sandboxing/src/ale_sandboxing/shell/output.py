"""Output of a command on this machine: read without blocking, drained to the end."""

import array
import asyncio
import fcntl
import os
import termios
from collections.abc import Callable

from ale_sandboxing.shell.capture import Capture

_CHUNK = 1 << 16
_READS_PER_TURN = 16
_DRAIN_PAUSE_S = 0.01


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
