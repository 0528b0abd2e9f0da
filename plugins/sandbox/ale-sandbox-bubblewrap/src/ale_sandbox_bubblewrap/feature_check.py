"""Tries the kernel features that a sandbox needs, in a separate process, and prints JSON.

Run as ``python -I -S -c 'import ...; main(uid, folder)'``. Standard library only.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ale_sandbox_bubblewrap import creation, kernel


def main(uid: int, folder: str) -> None:
    """Try user namespaces, then overlays with their upper layer in `folder` and in memory.

    Args:
        uid: the user to become first.
        folder: made for the check, and owned by this user.
    """
    found: dict[str, str | None] = dict.fromkeys(("namespaces", "overlay", "memory", "bounds"))
    os.chdir(folder)
    found["namespaces"] = _refusal(lambda: _become(uid)) or _refusal(creation.enter_user_namespace)
    if found["namespaces"] is None:
        Path("disk").mkdir()
        Path("memory").mkdir()
        found["overlay"] = _refusal(lambda: _overlay("disk"))
        found["memory"] = _refusal(_in_memory)
        found["bounds"] = _refusal(_bounds)
    sys.stdout.write(json.dumps(found))


def _refusal(attempt: Callable[[], None]) -> str | None:
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _become(uid: int) -> None:
    if os.geteuid() != uid:
        creation.become(uid)


def _bounds() -> None:
    creation.bound_notifications()
    kernel.unshare(kernel.CLONE_NEWIPC)
    creation.bound_ipc(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY))


def _in_memory() -> None:
    kernel.mount("tmpfs", "memory", "tmpfs", 0, "size=1m,mode=755")
    _overlay("memory")


def _overlay(name: str) -> None:
    """Mount one as sandboxes do, and remove a folder, for which it needs its attributes."""
    for part in ("lower", "lower/sub", "up", "work", "merged"):
        Path(name, part).mkdir()
    options = f"lowerdir={name}/lower,upperdir={name}/up,workdir={name}/work,userxattr,volatile"
    kernel.mount("overlay", f"{name}/merged", "overlay", 0, options)
    Path(name, "merged/sub").rmdir()
    Path(name, "merged/sub").mkdir()
