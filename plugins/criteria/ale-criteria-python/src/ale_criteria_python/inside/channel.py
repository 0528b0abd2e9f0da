"""Messages over a socket, and what both sides do to their process. Joined with the others."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 3, 4, 36
LONGEST = 64 << 20
DEEP = 20_000
"""Levels of nested values that can be written and read."""


class Closed(Exception):
    """The other side is gone, or sent a message that is too long."""


def control(option: int, value: Any) -> bool:
    """prctl; whether there is one."""
    try:
        import _ctypes

        this_program: Any = None
        prctl = _ctypes.dlsym(_ctypes.dlopen(this_program, 2), "prctl")
        return bool(_ctypes.call_function(prctl, (option, value, 0, 0, 0)) == 0)
    except (ImportError, OSError, AttributeError):
        return False  # a Python without ctypes


def silence() -> None:
    """Connect the standard streams to nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """So many bytes.

    Raises:
        Closed: there are fewer.
    """
    parts = []
    while size:
        part = read(min(size, 1 << 20))
        if not part:
            raise Closed("the other side is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Channel:
    """Sends and receives messages."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def send(self, data: bytes) -> None:
        """One message. Raises `Closed`."""
        if len(data) > LONGEST:
            raise Closed(f"a value of {len(data)} bytes is too long")
        try:
            self.socket.sendall(len(data).to_bytes(8, "big") + data)
        except OSError as error:
            raise Closed("the other side is gone") from error

    def receive(self) -> bytes:
        """One message. Raises `Closed`."""
        try:
            size = int.from_bytes(read_exactly(self.socket.recv, 8), "big")
            if size > LONGEST:
                raise Closed(f"a value of {size} bytes is too long")
            return read_exactly(self.socket.recv, size)
        except OSError as error:
            raise Closed("the other side is gone") from error


def deeply(function: Callable[[], Any]) -> Any:
    """Run with a deeper recursion limit than the code of the answer and of the tests has."""
    kept = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    try:
        return function()
    finally:
        sys.setrecursionlimit(kept)
