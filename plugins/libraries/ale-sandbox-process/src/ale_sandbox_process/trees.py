"""Removal of folder trees, read-only ones included."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ale.errors import SandboxError

# Its own, not one of those that move files: an rmdir may wait for what others write to the disk.
_REMOVER = ThreadPoolExecutor(1, thread_name_prefix="ale-remove")


async def remove_all(folders: Iterable[Path], then: Callable[[], object] = lambda: None) -> None:
    """Remove trees, and wait without blocking the event loop; a missing one is fine.

    Args:
        then: called in the thread when they are gone.

    Raises:
        SandboxError: as `remove`.
    """

    def work() -> None:
        for folder in folders:
            if not remove_small(folder):
                remove(folder)
        then()

    await asyncio.get_running_loop().run_in_executor(_REMOVER, work)


def _unlock(folder: Path) -> None:
    folder.chmod(0o700)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            _unlock(entry)


def remove_small(folder: Path, most: int = 200) -> bool:
    """Remove a tree of at most `most` entries; True when it is gone.

    Faster than `shutil.rmtree`; safe because every process of the sandbox has ended.
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
