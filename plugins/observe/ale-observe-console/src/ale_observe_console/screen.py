"""The stream that progress is written to."""

import os
from collections.abc import Mapping
from typing import TextIO


class Screen:
    """Writes to a text stream, unbuffered if it has a file descriptor.

    A thread that is stuck in a write (a terminal stopped with Ctrl-S, a full pipe) must hold no
    lock that the rest of the program or the interpreter's exit would wait for; the lock of a
    buffered stream is one.
    """

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._environ = environ
        self.encoding = stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """Whether lines can be redrawn."""
        return self._stream.isatty() and self._environ.get("TERM") not in ("dumb", "")

    @property
    def colour(self) -> bool:
        """Whether styles may be used."""
        return self.isatty() and not self._environ.get("NO_COLOR")

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        if self._descriptor is not None and self._stream.isatty():
            columns, rows = os.get_terminal_size(self._descriptor)
            if columns and rows:
                return columns, rows
        return 80, 24

    def write(self, text: str) -> int:
        """Write all of `text`; blocks while the reader does not read.

        Raises:
            OSError: the reader is gone.
        """
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return len(text)
        data = text.encode(self.encoding, "backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, AttributeError):  # captured output has none
        return None
