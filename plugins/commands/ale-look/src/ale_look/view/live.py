"""Server-sent events: which runs have changed. Files are looked at only while somebody listens."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ale.runs import NOTES, holder
from ale_look.store.indexing import stamps_of
from ale_look.view.catalog import Catalog

EVERY_S = 1.0
"""Seconds between two looks at the files."""
LOOK_FOR_RUNS = 5
"""Looks at the files between two looks for new runs."""

_Seen = Mapping[str, Any]


def seen(paths: Mapping[str, Path]) -> _Seen:
    """Sizes and times of each run's files, and whether a process writes to it."""
    return {key: (_stamps(path), holder(path) is not None) for key, path in paths.items()}


def _stamps(path: Path) -> Mapping[str, Any] | None:
    """The stamps; None for a run that can't be read."""
    try:
        notes = path / NOTES
        size = notes.stat().st_size if notes.exists() else 0  # the file only grows
        return {**stamps_of(path), notes.name: size}
    except OSError:
        return None


def changed(before: _Seen, now: _Seen) -> list[str]:
    """The keys of runs that are new, gone, or not as they were."""
    return sorted(key for key in {*before, *now} if before.get(key) != now.get(key))


async def events(catalog: Catalog, every_s: float = EVERY_S) -> AsyncIterator[bytes]:
    """The stream of one listener: an event with the keys of runs, a comment if there is nothing."""
    paths = await asyncio.to_thread(catalog.find)
    before = await asyncio.to_thread(seen, paths)
    yield b"retry: 2000\n\n"
    looks = 0
    while True:
        await asyncio.sleep(every_s)
        looks += 1
        if looks % LOOK_FOR_RUNS == 0:
            paths = await asyncio.to_thread(catalog.find)
        now = await asyncio.to_thread(seen, paths)
        keys = changed(before, now)
        before = now
        yield b"data: " + msgspec.json.encode(keys) + b"\n\n" if keys else b":\n\n"
