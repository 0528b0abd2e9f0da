"""Git's settings that could decide a verdict, and its index: which files it does not look at."""

import contextlib
import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from os import stat_result
from pathlib import Path
from typing import Final

from attrs import frozen

INDEX = "/.git/index"
"""How the path of an index ends."""
_LONGEST = 1 << 28
_RUNS_OR_HIDES = re.compile(
    rb"fsmonitor|hookspath|external|textconv|filter|sshcommand|pager|editor|helper|include|proc"
    rb"|attributesfile|worktree|alias|command|program|driver|askpass|excludesfile|sparse"
    rb"|showuntracked|ignorestat|checkstat|ignoresubmodules|filemode\s*=\s*(?:false|no|off|0)",
    re.IGNORECASE,
)
_HEAD: Final = struct.Struct(">4sII")
_TIMES: Final = struct.Struct(">IIII")
"""Seconds and nanoseconds of an entry's time of change, then of its content's."""
_INODE = 20
_SIZE = 36
_NAME = 40
"""Offset of an object's name in an entry."""
_UNCHANGED, _EXTENDED, _SKIPPED = 0x8000, 0x4000, 0x4000
_WORD = 0xFFFFFFFF
_SPLIT = b"link"
"""The rest of the index is in another file."""
_UNREADABLE: Final = (struct.error, IndexError, ValueError)


class _OtherFormatError(ValueError):
    pass


@frozen
class _Entry:
    start: int
    path: bytes
    ignored: bool


def decides(config: bytes) -> bool:
    """Whether a file of settings has one that runs a program, or says which files are looked at."""
    return _RUNS_OR_HIDES.search(config) is not None


def hides(index: bytes) -> bool:
    """Whether an index has files that git does not look at; also if it can't be read."""
    try:
        entries, end = _entries(index)
        return any(entry.ignored for entry in entries) or _SPLIT in _extensions(index, end)
    except _UNREADABLE:
        return True


def move_index(index: Path, *, sources: Sequence[Path], seen: Path) -> None:
    """Rewrite a copied index, so that files that were up to date are so in the copy.

    Otherwise ``git diff-index`` takes them for changed: they have other numbers and times.

    Args:
        sources: the folder of the files, in each layer that was copied; the topmost first.
        seen: where the copies have the numbers and times that git will see.
    """

    def stats(name: str) -> tuple[stat_result, stat_result] | None:
        if ".." in name.split("/") or name.startswith("/"):
            return None
        for source in sources:
            with contextlib.suppress(OSError, ValueError):
                return os.lstat(f"{source}/{name}"), os.lstat(f"{seen}/{name}")
        return None

    opened = os.open(index, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(opened, "r+b") as file:
        about = os.fstat(file.fileno())
        if about.st_size > _LONGEST:
            return
        made = moved(file.read(), stats)
        if made is not None:
            file.seek(0)
            file.write(made)
            file.flush()
        os.utime(file.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))


def moved(
    index: bytes, stats: Callable[[str], tuple[stat_result, stat_result] | None]
) -> bytes | None:
    """The index of a copy, for which files that were up to date are so in the copy.

    Args:
        stats: of a path of the index, the state of the file and of its copy; None if it is not to
            be had.

    Returns:
        None if there is nothing to change, or its format is another one.
    """
    made = bytearray(index)
    try:
        entries, _ = _entries(index)
    except _UNREADABLE:
        return None
    for entry in entries:
        found = stats(entry.path.decode(errors="surrogateescape"))
        if found is None or not _is_up_to_date(index, entry.start, found[0]):
            continue
        new = found[1]
        struct.pack_into(">II", made, entry.start, *_split(new.st_ctime_ns))
        struct.pack_into(">I", made, entry.start + _INODE, new.st_ino & _WORD)
    if made == index:
        return None
    size, summed = _hashed(index)
    if summed is not None:
        made[-size:] = summed(bytes(made[:-size])).digest()
    return bytes(made)


def _is_up_to_date(index: bytes, start: int, file: stat_result) -> bool:
    times = _TIMES.unpack_from(index, start)
    (size,) = struct.unpack_from(">I", index, start + _SIZE)
    wanted = (*_split(file.st_ctime_ns), *_split(file.st_mtime_ns))
    return times == wanted and size == file.st_size & _WORD


def _split(ns: int) -> tuple[int, int]:
    seconds, rest = divmod(ns, 1_000_000_000)
    return seconds & _WORD, rest


def _hashed(index: bytes) -> tuple[int, Callable[[bytes], "hashlib._Hash"] | None]:
    """The size of the hash at the end, and what makes it; nothing does if it is left empty."""
    for size, name in ((20, "sha1"), (32, "sha256")):
        made: Callable[[bytes], hashlib._Hash] = lambda data, name=name: hashlib.new(name, data)  # type: ignore[misc]  # noqa: E731
        if made(index[:-size]).digest() == index[-size:]:
            return size, made
    if not any(index[-20:]):
        return 20, None
    raise _OtherFormatError


def _entries(index: bytes) -> tuple[list[_Entry], int]:
    """The entries, and where they end."""
    signature, version, count = _HEAD.unpack_from(index)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise _OtherFormatError
    size, _ = _hashed(index)
    found: list[_Entry] = []
    at, path = _HEAD.size, b""
    for _ in range(count):
        start, at = at, at + _NAME + size
        (flags,) = struct.unpack_from(">H", index, at)
        at += 2
        ignored = bool(flags & _UNCHANGED)
        if version > 2 and flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", index, at)
            at += 2
            ignored |= bool(more & _SKIPPED)
        if version == 4:
            dropped, at = _number(index, at)
            path = path[: len(path) - dropped]
        else:
            path = b""
        end = index.index(b"\0", at)
        path += index[at:end]
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        found.append(_Entry(start, path, ignored))
    return found, at


def _extensions(index: bytes, at: int) -> Iterator[bytes]:
    """The names of what follows the entries."""
    size, _ = _hashed(index)
    while at < len(index) - size:
        name, length = struct.unpack_from(">4sI", index, at)
        yield name
        at += 8 + length


def _number(index: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs, and where it ends."""
    byte = index[at]
    number, at = byte & 127, at + 1
    while byte & 128:
        byte = index[at]
        number, at = ((number + 1) << 7) | (byte & 127), at + 1
    return number, at
