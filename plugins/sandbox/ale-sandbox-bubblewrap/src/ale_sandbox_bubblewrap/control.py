"""The host's pipes to each sandbox, in a file system in memory that ends with the fork server.

On a disk, making a pipe would cost more than all the rest of a command in a session. They are named
pipes, in a folder that is bound read-only into the sandbox and can't be listed there.
"""

import contextlib
import os
import secrets

from ale import folders
from ale_sandbox_bubblewrap import base
from ale_sandboxing.process.shell import Pipe
from ale_sandboxing.shell.session import File

_NAME_BYTES = 8
_HOST_END = os.O_NONBLOCK | os.O_CLOEXEC


class Controls:
    """A folder for each sandbox.

    Args:
        folder: descriptor of the folder around them, as the fork server has it; closed by `close`.
        owner: whom they belong to; None: this process's user.
    """

    def __init__(self, folder: int, owner: int | None) -> None:
        self._folder = folder
        self._owner = owner

    def make(self, id: str) -> "Control":
        """The folder of a new sandbox: it can't be listed, so names in it can't be guessed."""
        os.mkdir(id, 0o300, dir_fd=self._folder)
        self.give(id, self._folder)
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        return Control(self, id, os.open(id, flags, dir_fd=self._folder))

    def give(self, name: str, folder: int) -> None:
        """Give an entry of a folder to the sandboxes' user."""
        if self._owner is not None:
            os.chown(name, self._owner, self._owner, dir_fd=folder, follow_symlinks=False)

    def remove(self, id: str) -> None:
        """Remove the folder of a sandbox that has ended."""
        if self._folder >= 0:
            folders.remove(id, self._folder)

    def close(self) -> None:
        """Close the folder. May be called again."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


class Control:
    """The folder of the pipes to one sandbox. See `ale_sandboxing.process.shell.Pipes`."""

    def __init__(self, controls: Controls, id: str, folder: int) -> None:
        self._controls = controls
        self._id = id
        self._folder = folder

    def pipe(self) -> Pipe:
        """A named pipe that the sandbox can write to."""
        name = secrets.token_urlsafe(_NAME_BYTES)
        os.mkfifo(name, 0o600, dir_fd=self._folder)
        self._controls.give(name, self._folder)
        reader = os.open(name, os.O_RDONLY | _HOST_END, dir_fd=self._folder)
        # While it is open, the pipe has no end that would wake this process in vain.
        guard = os.open(name, os.O_WRONLY | _HOST_END, dir_fd=self._folder)

        def release() -> None:
            os.close(guard)
            self._drop(name)

        return Pipe(self._inside(name), reader, release)

    def file(self, text: bytes) -> File:
        """A file that the sandbox can read."""
        name = secrets.token_urlsafe(_NAME_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._folder), "wb") as file:
            file.write(text)
        self._controls.give(name, self._folder)
        return File(self._inside(name), lambda: self._drop(name))

    def _drop(self, name: str) -> None:
        """Remove a pipe or file. Processes that have it open can still use it."""
        if self._folder >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)

    def _inside(self, name: str) -> bytes:
        """Its path in the sandbox."""
        return f"{base.CONTROL}/{name}".encode()

    def close(self) -> None:
        """Remove the folder, when the sandbox has ended. May be called again."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
            self._controls.remove(self._id)
