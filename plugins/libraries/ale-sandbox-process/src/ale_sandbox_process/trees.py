"""Removal of folder trees, read-only ones included."""

import errno
import os
import shutil
from pathlib import Path

from ale.errors import SandboxError


def _unlock(folder: Path) -> None:
    folder.chmod(0o700)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            _unlock(entry)


def remove_small(folder: Path, most: int = 200) -> bool:
    """Remove a tree of at most `most` entries; True when it is gone.

    Faster than `shutil.rmtree` in a thread; safe because every process of the sandbox has ended.
    """
    try:
        _remove_entries(str(folder), most)
        folder.rmdir()
    except OSError:  # a read-only folder, say: `remove` handles it or says why not
        return False
    return True


def _remove_entries(folder: str, most: int) -> int:
    """The rest of `most`. Raises OSError when there are more entries."""
    with os.scandir(folder) as entries:
        for entry in entries:
            most -= 1
            if most < 0:
                raise OSError(errno.E2BIG, "more than a few entries", folder)
            if entry.is_dir(follow_symlinks=False):
                most = _remove_entries(entry.path, most)
                os.rmdir(entry.path)  # noqa: PTH106
            else:
                os.unlink(entry.path)  # noqa: PTH108
    return most


def remove(folder: Path) -> None:
    """Remove a tree, read-only folders included; a missing one is fine.

    Raises:
        SandboxError: something in it could not be removed (immutable, another user's, a mount).
    """
    if not folder.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _unlock(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise SandboxError(f"{folder} could not be removed")
