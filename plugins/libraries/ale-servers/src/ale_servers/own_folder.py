"""Folders for weights that leave nothing behind when their process is killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "ale-weights-"


def own_folder(root: Path) -> tuple[Path, int]:
    """A new folder in `root`, and the descriptor of its lock, which the kernel releases when this
    process ends, however it ends. Removes what killed processes have left there.
    """
    remove_left(root)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        if (lock := _locked(folder)) is not None:  # another process may have removed it
            return folder, lock


def remove_left(root: Path) -> None:
    """Remove the folders in `root` that nobody has locked: those of killed processes."""
    for left in root.glob(f"{_PREFIX}*"):
        if (lock := _locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock an existing folder of this user; None where that is not possible."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = os.fstat(descriptor)
        if about.st_uid == os.geteuid() and about.st_nlink:
            return descriptor
    os.close(descriptor)
    return None
