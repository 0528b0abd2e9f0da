"""Pipes of this process that a shell opens as ``/proc/PID/fd/N``, and files for it."""

import os
import shlex
from pathlib import Path

from ale_sandboxing.process.shell import Pipe
from ale_sandboxing.shell.session import File
from ale_sandboxing.shell.text import as_bytes


class LocalPipes:
    """See `ale_sandboxing.process.shell.Pipes`.

    Args:
        folder: where to put commands that are too long for an argument.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0

    def pipe(self) -> Pipe:
        """A pipe that any process of this user can open."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        return Pipe(b"/proc/%d/fd/%d" % (os.getpid(), writer), reader, lambda: os.close(writer))

    def file(self, text: bytes) -> File:
        """A file outside the workspace."""
        self._files += 1
        path = self._folder / f"command-{self._files}"
        path.write_bytes(text)
        return File(as_bytes(shlex.quote(str(path))), lambda: path.unlink(missing_ok=True))
