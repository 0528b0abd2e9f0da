"""Start a process with a handle that can't go stale, and its real exit code."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from ale_sandboxing.shell.session import File
from ale_sandboxing.shell.text import LONGEST_ARGUMENT, as_bytes


class Child:
    """A process in a session of its own.

    `subprocess.Popen` starts it with vfork, so that the size of the host process costs nothing,
    and closes descriptors that a library may have left inheritable. Its end is reported by a
    pidfd in the event loop: no thread, no SIGCHLD handler.
    """

    def __init__(
        self,
        argv: Sequence[bytes],
        *,
        executable: str,
        env: Mapping[str, str],
        cwd: str,
        stdin: int,
        stdout: int,
        stderr: int,
        note: str = "",
    ) -> None:
        self.note = note
        self._process = subprocess.Popen(
            argv,
            executable=executable,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._on_end)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        if not self.ended.done():
            self.ended.set_result(code if code >= 0 else 128 - code)

    @property
    def pid(self) -> int:
        """Process id, its own until `ended` is done."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, unless it has ended.

        Raises:
            PermissionError: it belongs to another user now.
        """
        if not self.ended.done():
            # It is a zombie until `_on_end` reaps it.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


@contextlib.contextmanager
def command_line(
    command: str | Sequence[str], *, limits: bytes, file: Callable[[bytes], File]
) -> Iterator[list[bytes]]:
    """Arguments for a shell that limits itself, then becomes or runs the command.

    Args:
        limits: commands that are run first; each ends in ``;``.
        file: writes a script for the shell to read.
    """
    if not isinstance(command, str):
        yield [b"sh", b"-c", limits + b'exec "$@"', b"sh", *map(as_bytes, command)]
        return
    text = as_bytes(command)
    if len(text) <= LONGEST_ARGUMENT:
        # On one line with the command, so that the shell's line numbers are the command's.
        yield [b"sh", b"-c", limits + text]
        return
    script = file(text)
    try:
        yield [b"sh", b"-c", limits + b". " + script.path]
    finally:
        script.release()


def pipe(on_failure: ExitStack, child_ends: ExitStack) -> tuple[int, int]:
    """A pipe for output; `on_failure` closes its reading end, `child_ends` its writing end."""
    reader, writer = os.pipe()
    on_failure.callback(os.close, reader)
    child_ends.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer


def input_of(data: bytes | None, child_ends: ExitStack) -> int:
    """Input for a command, closed with `child_ends`.

    A file in memory: any size, and no writer that could block.
    """
    if data is None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        child_ends.callback(os.close, descriptor)
        return descriptor
    descriptor = os.memfd_create("stdin")
    child_ends.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
