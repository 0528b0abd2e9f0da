"""Shared by the sandbox benchmarks: bare operations, and their comparison.

Each pair is measured alternately, so that a busy machine slows down both; medians are compared.
"""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence

from ale.protocols import Sandbox

Row = tuple[str, float, float, str, bool]
"""What, seconds, seconds of the bare operation, the aim in words, whether it is met."""
ENV = {"PATH": "/usr/bin:/bin"}
_SHELL = ["bash", "--norc", "--noprofile"]


async def compare(
    ours: Callable[[], Awaitable[object]], bare: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Median seconds of each, measured in turns, after a tenth of the rounds to warm up."""
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
            _SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV, bufsize=0
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


async def bench_session_command(sandbox: Sandbox) -> Row:
    """One command in a shell that is already running."""
    session, shell = await sandbox.session(), BareShell()
    ours, bare = await compare(lambda: session.run("true"), shell.run, 2000)
    shell.close()
    await session.close()
    return "session command", ours, bare, "bare + 0.3 ms", ours <= bare + 0.0003


async def many_at_once(episode: Callable[[], Awaitable[object]], rounds: int) -> Row:
    """64 episodes at once against 4 at once: seconds for each, which is what throughput is."""

    async def one(slots: asyncio.Semaphore) -> None:
        async with slots:
            await episode()

    async def all_of_them(at_once: int) -> float:
        slots = asyncio.Semaphore(at_once)
        begun = time.perf_counter()
        await asyncio.gather(*(one(slots) for _ in range(64)))
        return (time.perf_counter() - begun) / 64

    times = [(await all_of_them(64), await all_of_them(4)) for _ in range(rounds)]
    together = statistics.median(first for first, _ in times)
    few = statistics.median(second for _, second in times)
    # "No worse", less what two runs of the same thing differ by.
    return "64 at once against 4", together, few, "1.1x", together <= 1.1 * few


def report(title: str, rows: Sequence[Row]) -> int:
    """Print them as a table; the exit status: 1 where an aim is missed."""
    print(f"{title:26}{'measured':>12}{'bare':>12}{'ratio':>8}  {'aim':16}")
    for what, ours, bare, aim, met in rows:
        numbers = f"{ours * 1e3:9.3f} ms{bare * 1e3:9.3f} ms{ours / bare:7.1f}x"
        print(f"{what:26}{numbers}  {aim:16}{'ok' if met else 'MISSED'}")
    return 0 if all(met for *_, met in rows) else 1
