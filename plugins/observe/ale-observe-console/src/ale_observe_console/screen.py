"""Standard error: what it can show, and a few lines of it that are redrawn in place."""

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from ale_observe_console.layout import Style

# Autowrap is off while drawing, so that a line that is too long is cut and moves nothing; the
# update is marked as one (DEC mode 2026), so that terminals that know the mark show it whole.
BEGIN, END = "\x1b[?2026h\x1b[?7l", "\x1b[?7h\x1b[?2026l"
ERASE_LINE, ERASE_BELOW = "\x1b[K", "\x1b[J"


def place(lines: Sequence[str]) -> str:
    """What to write to (re)draw `lines` under the cursor's line, leaving the cursor where it was.

    The cursor rests on an empty line above the block and is never hidden. So a message that
    another part of the program writes lands on that line and stays, the block moves down by
    itself, and a process that is killed leaves a terminal that works.
    """
    block = "".join(f"\r\n{ERASE_LINE}{line}" for line in lines)
    return f"{BEGIN}\r{ERASE_LINE}{block}{ERASE_BELOW}\x1b[{len(lines)}A\r{END}"


def erase() -> str:
    """What to write to remove the block."""
    return f"\r{ERASE_BELOW}"


class Screen:
    """Writes to a text stream; past its buffers where it has a file descriptor.

    A thread that is stuck in a write (a terminal stopped with Ctrl-S, a full pipe) must hold no
    lock that the rest of the program or the interpreter's exit would wait for.
    """

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._environ = environ
        self._encoding = stream.encoding or "utf-8"

    @property
    def is_terminal(self) -> bool:
        """Can lines be redrawn?"""
        return self._stream.isatty() and self._environ.get("TERM") not in ("dumb", "")

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        if self._descriptor is not None and self._stream.isatty():
            columns, rows = os.get_terminal_size(self._descriptor)
            if columns and rows:
                return columns, rows
        return 80, 24

    def style(self) -> Style:
        """What fits now. The last column stays free: some terminals wrap when it is written."""
        return Style(
            width=max(1, self.size()[0] - 1),
            colour=self.is_terminal and not self._environ.get("NO_COLOR"),
            unicode=self._encoding.lower().replace("-", "") == "utf8",
        )

    def write(self, text: str) -> None:
        """Write all of `text`; waits as long as the other end does not read.

        Raises:
            OSError: the other end is gone.
        """
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        data = text.encode(self._encoding, "backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, AttributeError):  # captured output has none
        return None
