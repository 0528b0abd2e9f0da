"""Script to a process and lines from it over pipes, without blocking the event loop."""

import asyncio
import os
from collections.abc import Callable

_CHUNK = 1 << 16


class Writer:
    """Writes to a pipe; what does not fit is queued."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""
        self._open = True
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)

    def send(self, data: bytes) -> None:
        """Queue `data`. Dropped once the process has ended, which is reported elsewhere."""
        if not self._open:
            return
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
        """Close the pipe. May be called again."""
        if self._open:
            self._open = False
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)


class Lines:
    """Reads lines from a pipe until its end.

    Args:
        descriptor: the reading end; closed at the end of the stream or by `close`.
        on_line: called with each line, without its newline.
    """

    def __init__(self, descriptor: int, on_line: Callable[[bytes], object]) -> None:
        self._descriptor = descriptor
        self._on_line = on_line
        self._rest = b""
        self._open = True
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self.take)

    def take(self) -> None:
        """Read what is available now."""
        if not self._open:
            return
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line)

    def close(self) -> None:
        """Close the pipe. May be called again."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
