"""The lock of a directory that one process at a time may write."""

import os
import time
from pathlib import Path

from ale.errors import StoreError
from ale.files import open_file, restrict, store_errors

_MOMENT_S = 0.05


def lock(path: Path) -> int:
    """Lock a directory; closing the descriptor that is returned releases it.

    Raises:
        StoreError: another process holds it, the directory can't be written, or this system has no
            such locks.
    """
    try:
        import fcntl  # here: what only reads works without it
    except ModuleNotFoundError:
        raise StoreError(f"{path} can't be locked: runs need Linux, macOS or WSL") from None
    with store_errors(path):
        is_new = not (path / ".lock").exists()
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        if is_new:
            restrict(path / ".lock")
    try:
        # The kernel releases it when the process ends, even by a signal.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_MOMENT_S)  # `holder` has it for a moment
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode().strip()
        os.close(descriptor)
        raise in_use(path, owner) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def in_use(path: Path, pid: str) -> StoreError:
    """The error for a directory that another process has locked."""
    return StoreError(f"{path} is in use by process {pid}, which is running")


def holder(path: Path) -> str | None:
    """Id of the process that holds the lock of a directory, or None; nothing is written."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return None  # nothing can be locked
    try:
        with open_file(path / ".lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(32).decode().strip()
    except OSError:
        return None  # no lock, or not ours to see
    return None
