"""Files of names that an engine mounts into a container, and into all that use its network.

They are one file for all of these, so that what is written in one is read in the others.
"""

import contextlib
import ctypes
import os
import posixpath
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from ale.errors import UnsupportedError
from ale.judging import folder_below

NAMES = ("/etc/hosts", "/etc/resolv.conf", "/etc/hostname")
_OF_A_CONTAINER = re.compile(rb"\bale-[0-9a-f]{12}\b")
_LONGEST = 1 << 20
_MOST_LINKS = 40
_MOUNTS, _FILES = 0x00020000, 0x200
"""Namespaces of mounts, and what threads share of the current folder and root."""
_DETACH, _NOT_A_LINK = 2, 8


def mounts(pid: int) -> frozenset[str]:
    """Paths of a process's other file systems."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines()
    places = (
        re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[4])
        for line in lines
    )
    return frozenset(place for place in places if place != "/")


def mounted(pid: int, container: str) -> dict[str, bytes]:
    """The contents of those that are mounted for a process. Blocks.

    Without the lines that podman adds for each container that uses the network.

    Args:
        container: name of the process's own.

    Raises:
        OSError: the process has ended.
    """
    found = {}
    for path in mounts(pid).intersection(NAMES):
        with contextlib.suppress(OSError), _open(pid, path, os.O_RDONLY) as opened:
            lines = os.read(opened, _LONGEST).splitlines(True)
            found[path] = b"".join(
                line for line in lines if set(_OF_A_CONTAINER.findall(line)) <= {container.encode()}
            )
    return found


def changed_by_engine(
    names: Mapping[str, bytes], before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> dict[str, bytes]:
    """The contents, with what an engine has added to the files, and without what it removed."""
    made = {}
    for path, content in names.items():
        old, new = (given.get(path, b"").splitlines(True) for given in (before, after))
        kept = [line for line in content.splitlines(True) if line in new or line not in old]
        made[path] = b"".join([*kept, *(line for line in new if line not in old)])
    return made


def detach(pid: int, contents: Mapping[str, bytes]) -> None:
    """Give a container files of its own in place of the mounted ones. Blocks.

    Raises:
        UnsupportedError: the kernel does not let this process.
    """
    failed: list[OSError] = []

    def unmount() -> None:
        try:
            with Path(f"/proc/{pid}/ns/mnt").open("rb") as space:
                _check(libc.unshare(_FILES))
                _check(libc.setns(space.fileno(), _MOUNTS))
            for path in contents:
                _check(libc.umount2(path.encode(), _DETACH | _NOT_A_LINK))
        except OSError as error:
            failed.append(error)

    libc = ctypes.CDLL(None, use_errno=True)
    thread = threading.Thread(target=unmount)  # which leaves the namespace by ending
    thread.start()
    thread.join()
    try:
        for path, content in contents.items() if not failed else ():
            with _open(pid, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as opened:
                os.write(opened, content)
    except OSError as error:
        failed.append(error)
    if failed:
        raise UnsupportedError(f"a judge can't have its own {', '.join(contents)}: {failed[0]}")


def folder(pid: int, path: str) -> int:
    """A descriptor of a folder of a container, reached through no link.

    Raises:
        OSError: there is none.
    """
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return folder_below(root, path)
    finally:
        os.close(root)


def behind_links(pid: int, path: str) -> str:
    """Where a path of a container leads, as a process in it would follow it. Blocks."""
    place, parts, links = "/", path.split("/"), 0
    while parts:
        part = parts.pop(0)
        if part in ("", ".", ".."):
            place = posixpath.dirname(place) if part == ".." else place
            continue
        text = _link(pid, place, part) if links < _MOST_LINKS else None
        if text is None:
            place = posixpath.join(place, part)
            continue
        links += 1
        parts = text.split("/") + parts
        place = "/" if text.startswith("/") else place
    return place


def _link(pid: int, place: str, name: str) -> str | None:
    """The text of a link in a folder of a container; None where there is none."""
    try:
        opened = folder(pid, place)
    except OSError:
        return None
    try:
        return os.readlink(name, dir_fd=opened)
    except OSError:
        return None
    finally:
        os.close(opened)


@contextlib.contextmanager
def _open(pid: int, path: str, flags: int) -> Iterator[int]:
    """A file of a container, reached through no link."""
    above, name = posixpath.split(path)
    parent = folder(pid, above)
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        yield opened
    finally:
        os.close(opened)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
