"""File requests, done as a command in the sandbox would: with its root, rights and links.

Runs in the supervisor. Opened files are passed to the host process, which reads and writes.
Standard library only.
"""

import contextlib
import errno
import os
import stat
from typing import Any

_SAFE = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""A named pipe or a terminal must not block the supervisor."""


def do(message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Carry out a request; descriptors for the host go into `descriptors`.

    Raises:
        OSError: from the kernel.
    """
    task, path = message["do"], message["path"]
    if task == "open":
        descriptors.append(os.open(path, message["flags"] | _SAFE, message.get("mode", 0o644)))
    elif task == "folders":
        try:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        except RecursionError:  # about 1,000 levels; it must not end the supervisor
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path) from None
    elif task == "about":
        return _about(os.stat(path), "")  # noqa: PTH116
    elif task == "list":
        return {"entries": _entries(path)}
    elif task == "place":
        _place(path, message, descriptors)
    elif task == "finish":
        os.chmod(path, message["mode"])  # noqa: PTH101
        os.utime(path, ns=(message["time"], message["time"]))
    else:
        raise ValueError(f"the host asks for {task!r}")
    return {}


def _about(about: os.stat_result, link: str) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": about.st_mode, "time": about.st_mtime_ns}
    if stat.S_ISLNK(about.st_mode):
        found["link"] = os.readlink(link)  # noqa: PTH115 - the text unchanged
    return found


def _entries(path: str) -> dict[str, dict[str, Any]]:
    with os.scandir(path) as entries:
        return {
            entry.name: _about(entry.stat(follow_symlinks=False), entry.path) for entry in entries
        }


def _place(path: str, message: dict[str, Any], descriptors: list[int]) -> None:
    """Make an entry, replacing what exists; folders are merged."""
    kind = stat.S_IFMT(message["mode"])
    if kind == stat.S_IFDIR:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)  # noqa: PTH102
        # Also where it is a link to one.
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE))
        return
    with contextlib.suppress(FileNotFoundError):
        # Nothing is written through a link, or over a file that a process has open.
        os.unlink(path)  # noqa: PTH108
    if kind == stat.S_IFLNK:
        os.symlink(message["link"], path)  # noqa: PTH211
    elif kind == stat.S_IFIFO:
        os.mkfifo(path, stat.S_IMODE(message["mode"]))
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptors.append(os.open(path, flags | _SAFE, 0o600))
