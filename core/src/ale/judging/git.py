"""Git's settings that could decide a verdict, and its index: which files it does not look at."""

import contextlib
import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    rb"|showuntracked|ignorestat|checkstat|ignoresubmodules|filemode\s*=\s*(?:false|no|off|0)"
    rb"|insteadof|\bignore\s*=|mailmap|\bfsck|hiderefs",
    re.IGNORECASE,
)
_HEAD: Final = struct.Struct(">4sII")
_TIMES: Final = struct.Struct(">IIII")
"""Seconds and nanoseconds of an entry's time of change, then of its content's."""
_INODE = 20
_MODE = 24
_SIZE = 36
_NAME = 40
"""Offset of an object's name in an entry."""
_UNCHANGED, _EXTENDED, _SKIPPED = 0x8000, 0x4000, 0x4000
_WORD = 0xFFFFFFFF
_SPLIT = b"link"
"""The rest of the index is in another file."""
_TREES = b"TREE"
"""Names of trees, which git takes for those of the entries."""
_FOLDER_MODE, _SUBMODULE_MODE = 0o040000, 0o160000
_CHUNK = 1 << 20
_UNREADABLE: Final = (struct.error, IndexError, ValueError, RecursionError)


class _OtherFormatError(ValueError):
    pass


@frozen
class _Entry:
    start: int
    path: bytes
    mode: int
    name: bytes
    """The object's."""
    ignored: bool


def decides(config: bytes) -> bool:
    """Whether a file of settings has one that runs a program, or says which files are looked at."""
    return _RUNS_OR_HIDES.search(config) is not None


def hides(index: bytes) -> bool:
    """Whether an index has files that git does not look at; also if it can't be read."""
    try:
        entries, end = _entries(index)
        more = dict(_extensions(index, end))
        if any(entry.ignored for entry in entries) or _SPLIT in more:
            return True
        return _TREES in more and not _are_trees(more[_TREES], entries, _hashed(index)[0])
    except _UNREADABLE:
        return True


def _are_trees(said: bytes, entries: Sequence[_Entry], size: int) -> bool:
    """Whether the trees of an index are those of its entries: git compares no entry of a known
    tree."""
    made: dict[bytes, list[tuple[bytes, int, bytes]]] = {b"": []}
    for entry in entries:
        folder, _, name = entry.path.rpartition(b"/")
        while folder not in made:
            made[folder] = []
            folder = folder.rpartition(b"/")[0]
        made[entry.path.rpartition(b"/")[0]].append((name, entry.mode, entry.name))
    found: dict[bytes, bytes] = {}
    for folder in sorted(made, key=lambda path: -path.count(b"/") - bool(path)):
        found[folder] = name = _tree(made[folder], size)
        if folder:
            above, _, base = folder.rpartition(b"/")
            made[above].append((base, _FOLDER_MODE, name))
    return all(found.get(path) == name for path, name in _said_trees(said, size))


def _tree(entries: list[tuple[bytes, int, bytes]], size: int) -> bytes:
    """The name of a tree."""
    in_order = sorted(entries, key=lambda one: one[0] + b"/" * (one[1] == _FOLDER_MODE))
    data = b"".join(b"%o %s\0%s" % (mode, name, object_) for name, mode, object_ in in_order)
    return _named(size, b"tree", len(data), [data])


def _said_trees(data: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The trees of an index that are known: path, and name of the object."""
    at = 0
    above: list[tuple[bytes, int]] = []
    """Each open tree: its path, and how many in it are still to come."""
    while at < len(data):
        end = data.index(b"\0", at)
        line = data.index(b"\n", end)
        count, inner = map(int, data[end + 1 : line].split(b" "))
        outer = above[-1][0] + b"/" if above and above[-1][0] else b""
        path = outer + data[at:end]
        at = line + 1
        if count >= 0:
            yield path, data[at : at + size]
            at += size
        if above:
            above[-1] = (above[-1][0], above[-1][1] - 1)
        above.append((path, inner))
        while above and above[-1][1] <= 0:
            above.pop()


def _named(size: int, kind: bytes, length: int, data: Iterable[bytes]) -> bytes:
    """The name that git gives to an object."""
    made = hashlib.new("sha256" if size == 32 else "sha1", b"%s %d\0" % (kind, length))
    for part in data:
        made.update(part)
    return made.digest()


def move_index(
    index: Path,
    *,
    sources: Sequence[Path],
    seen: Path,
    image: Callable[[str], Path | None] = lambda name: None,
) -> None:
    """Rewrite a copied index, so that files that were up to date are so in the copy.

    Otherwise ``git diff-index`` takes them for changed: they have other numbers and times. Of a
    file whose content is not what the index says, git is made to look at the content.

    Args:
        sources: the folder of the files, in each layer that was copied; the topmost first.
        seen: where the copies have the numbers and times that git will see.
        image: where the image has a file; None if it does not.
    """

    def stats(name: str) -> tuple[Path, stat_result | None] | None:
        if ".." in name.split("/") or name.startswith("/"):
            return None
        for source in sources:
            with contextlib.suppress(OSError, ValueError):
                os.lstat(f"{source}/{name}")
                return Path(f"{source}/{name}"), os.lstat(f"{seen}/{name}")
        place = image(name)
        return None if place is None else (place, None)

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
    index: bytes, stats: Callable[[str], tuple[Path, stat_result | None] | None]
) -> bytes | None:
    """The index of a copy, for which files that were up to date are so in the copy.

    Args:
        stats: of a path of the index, where the file is and the state of its copy, None for one
            that is not copied; None if it is not to be had.

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
        with contextlib.suppress(OSError):
            if found is None or not _is_up_to_date(index, entry.start, found[0].lstat()):
                continue
            if not _has_content(found[0], entry):
                _TIMES.pack_into(made, entry.start, 0, 0, 0, 0)
            elif (new := found[1]) is not None:
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


def _has_content(place: Path, entry: _Entry) -> bool:
    """Whether a file is what an entry says; also one whose line ends git has changed."""
    size, mode = len(entry.name), place.lstat().st_mode
    if entry.mode == _SUBMODULE_MODE:
        return True
    if stat.S_ISLNK(mode):
        text = os.fsencode(place.readlink())
        return _named(size, b"blob", len(text), [text]) == entry.name
    if not stat.S_ISREG(mode):
        return False
    for ends in (False, True):
        opened = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if not ends:
                parts: Iterable[bytes] = iter(lambda: file.read(_CHUNK), b"")
                length = os.fstat(opened).st_size
            elif length > _LONGEST:
                return False
            else:
                parts = [file.read(_LONGEST).replace(b"\r\n", b"\n")]
                length = len(parts[0])
            if _named(size, b"blob", length, parts) == entry.name:
                return True
    return False


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
        (mode,) = struct.unpack_from(">I", index, start + _MODE)
        name = index[start + _NAME : start + _NAME + size]
        found.append(_Entry(start, path, mode, name, ignored))
    return found, at


def _extensions(index: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    """Each part after the entries: its name and its data."""
    size, _ = _hashed(index)
    while at < len(index) - size:
        name, length = struct.unpack_from(">4sI", index, at)
        yield name, index[at + 8 : at + 8 + length]
        at += 8 + length


def _number(index: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs, and where it ends."""
    byte = index[at]
    number, at = byte & 127, at + 1
    while byte & 128:
        byte = index[at]
        number, at = ((number + 1) << 7) | (byte & 127), at + 1
    return number, at
