"""Removal of folder trees, whatever an agent has made of them."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ale.errors import SandboxError
from ale.workspaces import remove


def _made() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="ale-remove")


def _renew() -> None:
    global _REMOVER
    _REMOVER = _made()


# Its own, not one of those that move files: an rmdir may wait for what others write to the disk.
_REMOVER = _made()
# A fork copies the pool without its thread, which it would wait for.
os.register_at_fork(after_in_child=_renew)


async def remove_all(trees: Iterable[Path], then: Callable[[], object] = lambda: None) -> None:
    """Remove trees, and wait without blocking the event loop; a missing one is fine.

    Args:
        then: called in the thread when they are gone.

    Raises:
        SandboxError: as `remove`, when all that can be removed is gone.
    """

    def work() -> None:
        errors = []
        for tree in trees:
            try:
                if not remove_small(tree):
                    remove(tree)
            except SandboxError as error:
                errors.append(str(error))
        if errors:
            raise SandboxError("; ".join(errors))
        then()

    await asyncio.get_running_loop().run_in_executor(_REMOVER, work)


def remove_small(folder: Path, most: int = 200) -> bool:
    """Remove a tree of at most `most` entries; True when it is gone.

    Faster than `remove`; safe because every process of the sandbox has ended.
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
