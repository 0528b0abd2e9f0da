"""Messages over a socket, and what both sides do to their process. Joined with the others."""

from __future__ import annotations

import os
import sys

import _signal
import _socket
import resource

if __name__ != "ale_grading":
    from ale_criteria_python.inside.wire import Decoder, Encoder

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 3, 4, 36
LONGEST = 64 << 20
DEEP = 20_000
"""Levels of nested values that can be written and read."""


class Closed(Exception):
    """The other side is gone, or sent a message that is too long."""


def control(option, value):
    """prctl; whether there is one."""
    try:
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")
        return _ctypes.call_function(prctl, (option, value, 0, 0, 0)) == 0
    except (ImportError, OSError, AttributeError):
        return False  # a Python without ctypes


def silence():
    """Connect the standard streams to nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def read_exactly(read, size):
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

    def __init__(self, socket):
        self.socket = socket

    def send(self, data):
        """One message. Raises `Closed`."""
        if len(data) > LONGEST:
            raise Closed("a value of %d bytes is too long" % len(data))
        try:
            self.socket.sendall(len(data).to_bytes(8, "big") + data)
        except OSError as error:
            raise Closed("the other side is gone") from error

    def receive(self):
        """One message. Raises `Closed`."""
        try:
            size = int.from_bytes(read_exactly(self.socket.recv, 8), "big")
            if size > LONGEST:
                raise Closed("a value of %d bytes is too long" % size)
            return read_exactly(self.socket.recv, size)
        except OSError as error:
            raise Closed("the other side is gone") from error


def deeply(function):
    """Run with room for nested values; the code of the answer and of the tests has Python's own."""
    kept = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    try:
        return function()
    finally:
        sys.setrecursionlimit(kept)


def encoded(value, refer, shared, known=(), extra=()):
    """A message of a value, and of the content of some of the `known` objects.

    Args:
        extra: (number, object): these have changed, and the reader fills its own with them.

    Returns:
        The message, and every mutable object in it.
    """
    encoder = Encoder(refer, shared, known)

    def write():
        encoder.write(value)
        for number, changed in extra:
            encoder.parts.append(b"u%d\n" % number)
            encoder.content(changed)
        return encoder.done()

    return deeply(write), encoder.keep


def decoded(data, resolve, shared, known=()):
    """What `encoded` wrote: the value, and every mutable object in it; fills those that changed."""
    decoder = Decoder(data, resolve, shared, known)

    def read():
        value = decoder.read()
        while decoder.at < len(data):
            number = decoder.line()
            if number[:1] != b"u":
                raise ValueError("there is more than one value")
            decoder.fill(decoder.keep[int(number[1:])])
        return value

    return deeply(read), decoder.keep
