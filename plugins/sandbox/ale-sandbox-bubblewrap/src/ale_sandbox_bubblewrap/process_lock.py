"""A lock that a host process shares with its fork server and supervisors: free when all have ended.

A fork server whose host process was killed may still be making a layer. Whoever cleans up waits for
the lock, so that nothing is made after the cleaning up.
"""

import asyncio
import fcntl
import os
from pathlib import Path

from ale.errors import SandboxError
from ale_sandboxing.shell.owner import Owner

_TIMEOUT_S = 20.0


def _path(folder: Path, owner: Owner) -> Path:
    return folder / f"{owner.pid}-{owner.start}"


def acquire(folder: Path, owner: Owner) -> int:
    """Take the lock; a descriptor that the children of this process inherit."""
    descriptor = os.open(_path(folder, owner), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_released(folder: Path, owner: Owner) -> bool:
    """True when nobody holds the lock; its file is removed then."""
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


async def wait_released(folder: Path, owner: Owner) -> None:
    """Wait for the processes of a dead host process to end by themselves.

    Raises:
        SandboxError: they do not end in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT_S
    while not is_released(folder, owner):
        if loop.time() > deadline:
            raise SandboxError(f"processes started by the dead process {owner.pid} did not end")
        await asyncio.sleep(0.005)
