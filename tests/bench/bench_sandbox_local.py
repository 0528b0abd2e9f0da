"""The local sandbox against the bare operations of the same machine, in one run.

Run with ``python tests/bench/bench_sandbox_local.py``. Each pair is measured alternately, so that
a busy machine slows down both; the medians are compared.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_local.plugin import LocalOptions, build

Row = tuple[str, float, float, str, bool]
ENV = {"PATH": "/usr/bin:/bin"}
COMMANDS = 10
SHELL = ["bash", "--norc", "--noprofile"]


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
    return "exec", ours, bare, "2.0x", ours <= 2 * bare


async def bench_session_command(sandbox: Sandbox) -> Row:
    """One command in a shell that is already running."""
    session, shell = await sandbox.session(), BareShell()
    ours, bare = await compare(lambda: session.run("true"), shell.run, 2000)
    shell.close()
    return "session command", ours, bare, "bare + 0.3 ms", ours <= bare + 0.0003


async def bench_open_close(backend: SandboxBackend, folder: Path) -> Row:
    """A sandbox opened and closed, against a folder made and removed."""

    async def ours() -> None:
        async with backend.open(SandboxSpec()):
            pass

    def bare() -> None:
        shutil.rmtree(tempfile.mkdtemp(dir=folder))

    measured, floor = await compare(ours, bare, 200)
    return "open and close", measured, floor, "2 ms", measured <= 0.002


async def bench_episode(backend: SandboxBackend) -> Row:
    """What an episode costs: a sandbox, a session, ten commands."""

    async def ours() -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for _ in range(COMMANDS):
                await session.run("true")

    def bare() -> None:
        shell = BareShell()
        for _ in range(COMMANDS):
            shell.run()
        shell.close()

    measured, floor = await compare(ours, bare, 200)
    return "episode of 10 commands", measured, floor, "4.0x", measured <= 4 * floor


async def bench_fork(sandbox: Sandbox, folder: Path) -> Row:
    """A fork of a thousand files, against copying them."""
    await sandbox.exec("for i in $(seq 1000); do echo $i > file$i; done")

    async def ours() -> None:
        await (await sandbox.fork()).close()

    def bare() -> None:
        shutil.copytree(sandbox.workdir, folder / "copy", symlinks=True)
        shutil.rmtree(folder / "copy")

    measured, floor = await compare(ours, bare, 5)
    return "fork of 1000 files", measured, floor, "1.5x", measured <= 1.5 * floor


async def bench_many_at_once(backend: SandboxBackend) -> Row:
    """64 episodes at once, each against one alone: what waiting for one another adds."""

    async def episode() -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for _ in range(COMMANDS):
                await session.run("true")

    begun = time.perf_counter()
    for _ in range(64):
        await episode()
    middle = time.perf_counter()
    await asyncio.gather(*(episode() for _ in range(64)))
    ended = time.perf_counter()
    together, apart = (ended - middle) / 64, (middle - begun) / 64
    return "64 at once, each", together, apart, "1.2x", together <= 1.2 * apart


async def main() -> None:
    """All of them, as a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        backend = build(LocalOptions(root=folder), BuildContext(environ={"XDG_RUNTIME_DIR": name}))
        async with backend.open(SandboxSpec()) as sandbox:
            rows = [
                await bench_exec(sandbox),
                await bench_session_command(sandbox),
                await bench_open_close(backend, folder),
                await bench_episode(backend),
                await bench_fork(sandbox, folder),
                await bench_many_at_once(backend),
            ]
    print(f"{'local sandbox':24}{'measured':>12}{'bare':>12}{'ratio':>8}  {'aim':14}")
    for what, ours, bare, aim, met in rows:
        numbers = f"{ours * 1e3:9.3f} ms{bare * 1e3:9.3f} ms{ours / bare:7.1f}x"
        print(f"{what:24}{numbers}  {aim:14}{'ok' if met else 'MISSED'}")


if __name__ == "__main__":
    asyncio.run(main())
