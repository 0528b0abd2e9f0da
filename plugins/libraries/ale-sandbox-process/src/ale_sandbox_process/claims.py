"""Files that claim a name: made by one process alone, and written whole or not at all."""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from ale.errors import SandboxError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def claim(path: Path, text: bytes) -> bool:
    """Write a file; False when there is one of that name.

    Who reads it meanwhile finds it empty; so does everybody where its writer was killed just then,
    until `sweep`.
    """
    while True:
        try:
            descriptor = os.open(path, _NEW, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # for `sweep`, which may have been quicker
            if os.fstat(descriptor).st_nlink:
                file.write(text)  # one write: whole or not at all
                return True


def sweep(folder: Path) -> None:
    """Remove what a process has left that was killed while it wrote a claim."""
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            if path.stat().st_size:
                continue
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.fstat(file.fileno()).st_size:
                    path.unlink()


def private(folder: Path) -> None:
    """Make sure that the folder is there, is ours, and is closed to everybody else.

    Raises:
        SandboxError: somebody else was there first.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    else:
        return
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise SandboxError(f"{folder} is not a folder of this user; remove it or set another root")
    if stat.S_IMODE(about.st_mode) & 0o077:
        folder.chmod(0o700)
