"""The bubblewrap sandbox against the bare operations of the same machine, in one run.

Run with ``python tests/bench/bench_sandbox_bubblewrap.py``. Exit status 1 if an aim is missed.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandboxes import ENV, Row, bench_session_command, compare, many_at_once, report, spawn

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandbox_bubblewrap.plugin import build, probe

BARE_BOX = (
    "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64"
)
MIB = 1 << 20


async def bench_exec(sandbox: Sandbox) -> Row:
    """One command in a new shell."""
    ours, bare = await compare(lambda: sandbox.exec("true"), spawn, 300)
    return "exec", ours, bare, "bare + 5 ms", ours <= bare + 0.005


async def bench_open_close(backend: SandboxBackend) -> Row:
    """A sandbox opened, used once and closed, against bubblewrap itself running ``true``."""

    async def ours() -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            await sandbox.exec("true")

    def bare() -> None:
        subprocess.run([*BARE_BOX.split(), "/usr/bin/true"], env=ENV, check=True)

    measured, floor = await compare(ours, bare, 50)
    return "open, exec, close", measured, floor, "bare + 50 ms", measured <= floor + 0.05


async def timed_fork(sandbox: Sandbox) -> float:
    """Seconds that a fork takes, when something has been written since the last."""
    await sandbox.exec("date > changed")
    begun = time.perf_counter()
    twin = await sandbox.fork()
    took = time.perf_counter() - begun
    await twin.close()
    return took


async def bench_fork(backend: SandboxBackend) -> list[Row]:
    """A fork of a sandbox that has written 1 GB, against one that has written 1 MB."""
    async with backend.open(SandboxSpec()) as large, backend.open(SandboxSpec()) as small:
        await large.exec(f"dd if=/dev/zero of=data bs={MIB} count=1024 2>/dev/null; mkdir d")
        await large.exec("i=0; while [ $i -lt 2000 ]; do echo $i > d/$i; i=$((i+1)); done")
        await small.exec(f"dd if=/dev/zero of=data bs={MIB} count=1 2>/dev/null")
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(12):
            times[0].append(await timed_fork(large))
            times[1].append(await timed_fork(small))
    ours, bare = statistics.median(times[0]), statistics.median(times[1])
    first = times[0][0]
    return [
        ("fork, 1 GB against 1 MB", ours, bare, "2.0x and 50 ms", ours <= min(2 * bare, 0.05)),
        ("fork, 1 GB, the first", first, bare, "50 ms", first <= 0.05),
    ]


async def episode(backend: SandboxBackend) -> None:
    """A sandbox, a session with ten commands, and one `exec`."""
    async with backend.open(SandboxSpec()) as sandbox:
        session = await sandbox.session()
        for _ in range(10):
            await session.run("true")
        await sandbox.exec("true")


async def main() -> int:
    """Print the table; 1 if an aim is missed."""
    found = probe()
    if not found.usable:
        print(f"bubblewrap can't run here: {found.reason}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        context = BuildContext(environ={"XDG_RUNTIME_DIR": name})
        backend = build(BubblewrapOptions(root=Path(name)), context)
        async with backend.open(SandboxSpec()) as sandbox:
            rows = [await bench_exec(sandbox), await bench_session_command(sandbox)]
        rows += [
            await bench_open_close(backend),
            *await bench_fork(backend),
            await many_at_once(lambda: episode(backend), 3),
        ]
        await backend.aclose()
    return report("bubblewrap sandbox", rows)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
