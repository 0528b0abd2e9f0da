"""Files of JSON lines that several programs append to at once."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ale._store.codec import invalid_record
from ale._store.lines import Appender
from ale._store.redact import Redactor
from ale.errors import InputError, StoreError
from ale.files import restrict, store_errors

_PATIENCE_S = 10.0
"""Seconds that a writer waits for another one, which needs a moment."""
_MOMENT_S = 0.01


def append_record(path: Path, record: object) -> None:
    """Append a record to a file of JSON lines, on the disk when this returns.

    Other processes may append at the same time. An incomplete last line, of one that was killed,
    is replaced. Values of secret environment variables are masked, as in all files of a run.

    Args:
        path: the file, which is made if it is not there; a link is refused.

    Raises:
        InputError: the record has a value that can't be read back.
        StoreError: it can't be written, or another process has the file for 10 seconds.
    """
    if (problem := invalid_record(record)) is not None:
        raise InputError.of(problem, file=str(path))
    with locked(path) as descriptor, store_errors(path):
        appender = Appender(path, Redactor(os.environ))
        try:
            appender.append(record)
        finally:
            appender.close()
        os.fsync(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A file that no other process appends to during the block."""
    try:
        import fcntl  # here: what only reads works without it
    except ModuleNotFoundError:
        raise StoreError(f"{path} can't be locked: that needs Linux, macOS or WSL") from None
    end = time.monotonic() + _PATIENCE_S
    while True:
        descriptor = _opened(path)
        try:
            while not (got := _got(fcntl, descriptor)) and time.monotonic() <= end:
                time.sleep(_MOMENT_S)
            if not got:
                raise StoreError(f"{path} is locked by another process for {_PATIENCE_S:g} s")
            if is_there(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _got(fcntl: Any, descriptor: int) -> bool:
    """Lock a file; False if somebody else has it."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _opened(path: Path) -> int:
    """A descriptor of the file, which is made if it is not there.

    A link is refused: the run may come from somebody else, and the link lead to any file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with store_errors(path):
        is_new = not path.exists()
        descriptor = os.open(path, flags, 0o660)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            if is_new:
                restrict(path)
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")


def is_there(path: Path, descriptor: int) -> bool:
    """Is this open file still the one of the path, and not removed meanwhile?"""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    return False
