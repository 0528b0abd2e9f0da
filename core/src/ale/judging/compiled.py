"""Python's compiled modules that an agent has left: their code can be another than the source's."""

import os
import posixpath
import stat
from collections.abc import Callable

FOLDER = "__pycache__"
_HEADER = 8
_BY_HASH, _CHECKED = 1, 2
"""Bits of a header: Python compares a hash with the source's, and if so whether it ever looks."""


def is_no_work(path: str, place: str, mode: int, is_the_agents: Callable[[str], bool]) -> bool:
    """Whether a file is a compiled module that no judge is to have.

    Python writes such again. With one of a module of the image's, or with one that is never
    compared with its source, other code than the source's would run.

    Args:
        path: in the sandbox.
        place: where it is here.
        is_the_agents: whether the agent has made or changed a file of the sandbox.
    """
    folder, name = posixpath.split(path)
    if name == FOLDER:
        return stat.S_ISLNK(mode)
    above, base = posixpath.split(folder)
    if base != FOLDER or not name.endswith(".pyc"):
        return False
    source = f"{above}/{name.partition('.')[0]}.py"
    return not (stat.S_ISREG(mode) and is_the_agents(source) and _is_checked(place))


def _is_checked(place: str) -> bool:
    """Whether Python compares a compiled module with its source before it runs it."""
    opened = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        header = os.read(opened, _HEADER)
    finally:
        os.close(opened)
    flags = int.from_bytes(header[4:], "little")
    return len(header) == _HEADER and flags & (_BY_HASH | _CHECKED) != _BY_HASH
