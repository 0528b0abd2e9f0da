"""A lock that a host process shares with its zygote and keepers: free, when none of them is left.

Killed together with its host process, a zygote may be about to make a layer still. Whoever cleans
up after them waits for the lock, so that nothing is made after it has been looked for.
"""

import asyncio
import fcntl
import os
from pathlib import Path

from ale.errors import SandboxError
from ale_sandbox_shell.owner import Owner

_PATIENCE_S = 20.0


def _path(folder: Path, owner: Owner) -> Path:
    return folder / f"{owner.pid}-{owner.start}"


def hold(folder: Path, owner: Owner) -> int:
    """The lock of a living host process: a descriptor that its children are to keep."""
    descriptor = os.open(_path(folder, owner), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def dropped(folder: Path, owner: Owner) -> bool:
    """Nobody holds the lock; its file is gone then."""
    try:
        descriptor = os.open(_path(folder, owner), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        _path(folder, owner).unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


async def until_dropped(folder: Path, owner: Owner) -> None:
    """Wait for the processes of a dead host process to end, as they do by themselves.

    Raises:
        SandboxError: they do not.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while not dropped(folder, owner):
        if loop.time() > deadline:
            raise SandboxError(f"what the dead process {owner.pid} has started would not end")
        await asyncio.sleep(0.005)
