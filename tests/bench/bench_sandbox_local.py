"""The local sandbox against the bare operations of the same machine, in one run.

Run with ``python tests/bench/bench_sandbox_local.py``. Exit status 1 if an aim is missed.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from sandboxes import BareShell, Row, bench_session_command, compare, many_at_once, report, spawn

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.plugin import build

COMMANDS = 10


async def bench_exec(sandbox: Sandbox) -> Row:
    """One command in a new shell."""
    ours, bare = await compare(lambda: sandbox.exec("true"), spawn, 300)
    return "exec", ours, bare, "2.0x", ours <= 2 * bare


async def bench_open_close(backend: SandboxBackend, folder: Path) -> Row:
    """A sandbox opened and closed, against a folder made and removed."""

    async def ours() -> None:
        async with backend.open(SandboxSpec()):
            pass

    def bare() -> None:
        shutil.rmtree(tempfile.mkdtemp(dir=folder))

    measured, floor = await compare(ours, bare, 200)
    return "open and close", measured, floor, "2 ms", measured <= 0.002


async def episode(backend: SandboxBackend) -> None:
    """A sandbox, a session, ten commands."""
    async with backend.open(SandboxSpec()) as sandbox:
        session = await sandbox.session()
        for _ in range(COMMANDS):
            await session.run("true")


async def bench_episode(backend: SandboxBackend) -> Row:
    """What an episode costs."""

    def bare() -> None:
        shell = BareShell()
        for _ in range(COMMANDS):
            shell.run()
        shell.close()

    measured, floor = await compare(lambda: episode(backend), bare, 200)
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


async def main() -> int:
    """Print the table; 1 if an aim is missed."""
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
                await many_at_once(lambda: episode(backend), 5),
            ]
    return report("local sandbox", rows)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
