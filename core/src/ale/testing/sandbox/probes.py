"""Probes of processes and files in a sandbox, for the kit and for tests of sandboxes."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ale.protocols import Sandbox
from ale.testing.waiting import until
from ale.types import ExecResult

TIMEOUT_S = 30.0
"""Limit on each call to the sandbox; one that takes longer counts as hanging."""
MIB = 1 << 20

ODD_NAMES = (
    "two words",
    'quote\'s "and" more',
    "line\nbreak",
    "dollar $HOME `id` \\ back",
    "ünï-日本-🙂",
    "-dash",
)


@contextlib.contextmanager
def case(name: str) -> Iterator[None]:
    """Name the case in an error: cases share one sandbox, because opening it may be slow."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case {name!r}")
        raise


def beat(name: str) -> str:
    """A loop that adds a line to a file fifty times a second, for ever."""
    return f"while :; do echo x >> {name}; sleep 0.02; done"


async def size(sandbox: Sandbox, name: str) -> int:
    """Bytes in a file; 0 if it does not exist."""
    try:
        return len(await sandbox.read(name))
    except FileNotFoundError:
        return 0


async def beating(sandbox: Sandbox, *names: str) -> list[str]:
    """The files among `names` to which a process still writes."""
    before = [await size(sandbox, name) for name in names]
    await asyncio.sleep(0.3)
    after = [await size(sandbox, name) for name in names]
    return [name for name, a, b in zip(names, before, after, strict=True) if b > a]


async def stopped(sandbox: Sandbox, *names: str, after: str) -> None:
    """Check that nothing writes to the files any more."""
    running = await beating(sandbox, *names)
    if running:  # or a write was under way when its process was killed
        running = await beating(sandbox, *running)
    assert not running, f"still running after {after}: the writers of {', '.join(running)}"


def expect(result: ExecResult, **wanted: object) -> None:
    """Compare fields of a result; an error names what differs and shows the rest."""
    for name, value in wanted.items():
        found = getattr(result, name)
        assert found == value, (
            f"`{name}` is {_short(found)}, expected {_short(value)}, in {_short(result)}"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:250]} ... {text[-250:]}"


async def keeps_beating(sandbox: Sandbox, name: str) -> None:
    """Wait for one more line, which shows that something still writes to the file."""
    await started(sandbox, name, await size(sandbox, name))


async def started(sandbox: Sandbox, name: str, before: int = 0) -> None:
    """Wait until something has written to the file, which had `before` bytes."""

    async def grown() -> bool:
        return await size(sandbox, name) > before

    await until(grown, f"a write to {name}", TIMEOUT_S)


def command_lines() -> dict[int, bytes]:
    """The command line of every process, as this host sees them."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or we may not read it
            found[int(folder.name)] = (folder / "cmdline").read_bytes()
    return found


def host_processes(word: str) -> list[int]:
    """Processes with `word` in their command line."""
    return [pid for pid, line in command_lines().items() if word.encode() in line]


def no_process_left(word: str) -> None:
    """Check that after `close` no process of this host has `word` in its command line."""
    left = host_processes(word)
    listed = ", ".join(f"{pid} {_name(pid)}" for pid in left)
    assert not left, f"`close` left {len(left)} processes running: {listed}"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has ended
        return "(ended)"


def descriptors() -> set[str]:
    """The open files of this process, one entry per descriptor."""
    entries = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            entries.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")  # noqa: PTH115
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return entries


def descriptors_passed_on() -> list[int]:
    """The descriptors that a program started by this process would inherit."""
    numbers = sorted(int(entry.split()[0]) for entry in descriptors())
    return [number for number in numbers if number > 2 and os.get_inheritable(number)]
