"""Where the dynamic loader finds a library."""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from ale.judging.settings import content
from ale.protocols import Judge

PRELOAD = "/etc/ld.so.preload"
CACHE = "/etc/ld.so.cache"
_SHARED = re.compile(r"[^/]+\.so(?:\.[0-9.]+)?")
FOLDERS = tuple(
    f"{base}/lib{rest}"
    for base in ("", "/usr")
    for rest in ("", "64", "/x86_64-linux-gnu", "/aarch64-linux-gnu")
)
_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD: Final = struct.Struct("<20sI24x")
_ENTRY: Final = struct.Struct("<iIIIQ")
_LONGEST = 1 << 26


async def has_any(judge: Judge, folders: Sequence[str], name: str) -> bool:
    """Whether the image has a file of this name in one of the folders."""
    for folder in folders:
        if await judge.has(f"{folder}/{name}", image=True):
            return True
    return False


async def is_anothers(name: str, judge: Judge) -> bool:
    """Whether it is the name of one of the image's libraries."""
    return bool(_SHARED.fullmatch(name)) and await has_any(judge, FOLDERS, name)


async def finds_anothers(judge: Judge) -> bool:
    """Whether the loader's cache has another file for one of the image's libraries: one that the
    image lacks, or of another name."""
    cache = await content(CACHE, judge, _LONGEST)
    try:
        entries = list(_entries(cache))
    except (struct.error, ValueError, UnicodeDecodeError):
        return True
    for name, path in entries:
        own = path.endswith(f"/{name}") and await has_any(judge, ("", "/usr"), path.lstrip("/"))
        if not own and await is_anothers(name, judge):
            return True
    return False


def _entries(cache: bytes) -> Iterator[tuple[str, str]]:
    """The libraries of a cache: name and path."""
    start = cache.index(_MAGIC)
    _, count = _HEAD.unpack_from(cache, start)
    for number in range(count):
        entry = _ENTRY.unpack_from(cache, start + _HEAD.size + number * _ENTRY.size)
        yield _text(cache, start + entry[1]), _text(cache, start + entry[2])


def _text(cache: bytes, start: int) -> str:
    return cache[start : cache.index(b"\0", start)].decode()
