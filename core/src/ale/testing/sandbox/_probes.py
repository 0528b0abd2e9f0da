"""What several probes share."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ale.protocols import Sandbox

PATIENCE_S = 20.0
"""Far above what any probe takes; a probe that needs it hangs."""
MIB = 1 << 20

ODD_NAMES = (
    "two words",
    'quote\'s "and" more',
    "line\nbreak",
    "dollar $HOME `id` \\ back",
    "ünï-日本-🙂",
    "-dash",
)


def beat(name: str) -> str:
    """A loop that adds a line to a file fifty times a second, for ever."""
    return f"while :; do echo x >> {name}; sleep 0.02; done"


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something that must come soon."""
    end = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < end, f"{what} did not come within {PATIENCE_S:.0f} s"
        await asyncio.sleep(0.02)


async def size(sandbox: Sandbox, name: str) -> int:
    """Bytes in a file; 0 where there is none."""
    try:
        return len(await sandbox.read(name))
    except FileNotFoundError:
        return 0


async def beating(sandbox: Sandbox, *names: str) -> list[str]:
    """Which of the files does something still write to?"""
    before = [await size(sandbox, name) for name in names]
    await asyncio.sleep(0.3)
    after = [await size(sandbox, name) for name in names]
    return [name for name, a, b in zip(names, before, after, strict=True) if b > a]


async def keeps_beating(sandbox: Sandbox, name: str) -> None:
    """Wait for one more line: something still writes to the file."""
    before = await size(sandbox, name)

    async def grown() -> bool:
        return await size(sandbox, name) > before

    await until(grown, f"another write to {name}")


async def started(sandbox: Sandbox, name: str) -> None:
    """Wait until something has written to the file."""

    async def there() -> bool:
        return await size(sandbox, name) > 0

    await until(there, f"the first write to {name}")


def host_processes(word: str) -> list[int]:
    """Processes, as this host sees them, with `word` in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended, or is not ours to see
            continue
        if word.encode() in line:
            found.append(int(folder.name))
    return found


def descriptors() -> set[str]:
    """What this process has open, one entry per descriptor."""
    entries = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            entries.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")  # noqa: PTH115
        except FileNotFoundError:  # the listing's own
            continue
    return entries


def descriptors_passed_on() -> list[int]:
    """What a program that this process starts would inherit."""
    numbers = sorted(int(entry.split()[0]) for entry in descriptors())
    return [number for number in numbers if number > 2 and os.get_inheritable(number)]
