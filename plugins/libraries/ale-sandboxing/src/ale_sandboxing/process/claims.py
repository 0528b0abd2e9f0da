"""Files that claim a name: created by exactly one process, and written atomically."""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from ale.errors import SandboxError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def claim(path: Path, text: bytes) -> bool:
    """Write a file; False when there is one of that name.

    A concurrent reader finds it empty; it stays empty if its writer is killed at that moment, until
    `sweep`.
    """
    while True:
        try:
            descriptor = os.open(path, _CREATE, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # `sweep` may have been quicker
            if os.fstat(descriptor).st_nlink:
                file.write(text)  # one write: whole or not at all
                return True


def sweep(folder: Path) -> None:
    """Remove empty claims of processes that were killed while they wrote them."""
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            if path.stat().st_size:
                continue
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.fstat(file.fileno()).st_size:
                    path.unlink()


def private(folder: Path) -> None:
    """Make sure that the folder exists, is ours, and is closed to other users.

    Raises:
        SandboxError: another user owns it.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
        return
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise SandboxError(f"{folder} is not a folder of this user; remove it or set another root")
    if stat.S_IMODE(about.st_mode) & 0o077:
        folder.chmod(0o700)
