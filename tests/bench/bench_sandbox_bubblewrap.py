"""The bubblewrap sandbox against the bare operations of the same machine, in one run.

Run with ``python tests/bench/bench_sandbox_bubblewrap.py``. Each pair is measured in turns, so that
a busy machine slows down both; the medians are compared. Exit status 1 where an aim is missed.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap.plugin import BubblewrapOptions, build, probe

Row = tuple[str, float, float, str, bool]
ENV = {"PATH": "/usr/bin:/bin"}
SHELL = ["bash", "--norc", "--noprofile"]
BARE_BOX = (
    "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64"
)
MIB = 1 << 20


async def compare(
    ours: Callable[[], Awaitable[object]], bare: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Median seconds of each, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + rounds // 10):
        begun = time.perf_counter()
        await ours()
        middle = time.perf_counter()
        bare()
        ended = time.perf_counter()
        if turn >= rounds // 10:
            times[0].append(middle - begun)
            times[1].append(ended - middle)
    return statistics.median(times[0]), statistics.median(times[1])


def spawn() -> None:
    """A bare ``sh -c true``."""
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "true"], ENV), 0)


class BareShell:
    """Lines written to a bash, and one line read back for each."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()

    def run(self) -> None:
        """One command."""
        os.write(self._in, b"true;echo $?\n")
        os.read(self._out, 10)

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


async def bench_exec(sandbox: Sandbox) -> Row:
    """One command in a new shell."""
    ours, bare = await compare(lambda: sandbox.exec("true"), spawn, 300)
    return "exec", ours, bare, "bare + 5 ms", ours <= bare + 0.005


async def bench_session_command(sandbox: Sandbox) -> Row:
    """One command in a shell that is already running."""
    session, shell = await sandbox.session(), BareShell()
    ours, bare = await compare(lambda: session.run("true"), shell.run, 2000)
    shell.close()
    await session.close()
    return "session command", ours, bare, "bare + 0.5 ms", ours <= bare + 0.0005


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


async def bench_many_at_once(backend: SandboxBackend) -> Row:
    """64 sandboxes at once against 4 at once: seconds for each."""

    async def episode(slots: asyncio.Semaphore) -> None:
        async with slots, backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for _ in range(10):
                await session.run("true")
            await sandbox.exec("true")

    async def all_of_them(at_once: int) -> float:
        slots = asyncio.Semaphore(at_once)
        begun = time.perf_counter()
        await asyncio.gather(*(episode(slots) for _ in range(64)))
        return (time.perf_counter() - begun) / 64

    times = [(await all_of_them(64), await all_of_them(4)) for _ in range(3)]
    together = statistics.median(one for one, _ in times)
    few = statistics.median(one for _, one in times)
    return "64 at once against 4", together, few, "1.2x", together <= 1.2 * few


async def main() -> int:
    """All of them, as a table; 1 where an aim is missed."""
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
            await bench_many_at_once(backend),
        ]
        await backend.aclose()
    print(f"{'bubblewrap sandbox':26}{'measured':>12}{'bare':>12}{'ratio':>8}  {'aim':16}")
    for what, ours, bare, aim, met in rows:
        numbers = f"{ours * 1e3:9.3f} ms{bare * 1e3:9.3f} ms{ours / bare:7.1f}x"
        print(f"{what:26}{numbers}  {aim:16}{'ok' if met else 'MISSED'}")
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
