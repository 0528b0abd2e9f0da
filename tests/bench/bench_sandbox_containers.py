"""Sandboxes in containers against the bare operations of the same machine and engine, in one run.

Run with ``python tests/bench/bench_sandbox_containers.py [docker] [podman]``. Each pair is measured
in turns, so that a busy machine slows down both; the medians are compared. Exit status 1 where an
aim is missed. The image is the tests' busybox, made where it is missing.
"""

import asyncio
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_container.testing_images import BUSYBOX, CannotMakeError, provide

ENGINES = ("docker", "podman")
ENV = {"PATH": "/usr/bin:/bin"}
SPAWN_AIM_S = 0.005
EXEC_AIM = 10.0
OPEN_AIM = 1.2
CROWD_AIM = 1.2
CROWD = 64
FEW = 4


@frozen
class Row:
    """One comparison; ours and the other's median, in seconds."""

    what: str
    ours: float
    other: float
    aim: str
    met: bool


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
    """A bare ``sh -c true``, on the host."""
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "true"], ENV), 0)


async def bench_spawn(sandbox: Sandbox, what: str) -> Row:
    """One command in a new shell, against a new shell on the host."""
    ours, bare = await compare(lambda: sandbox.exec("true"), spawn, 500)
    return Row(what, ours, bare, "bare + 5 ms", ours <= bare + SPAWN_AIM_S)


def sdk_of(engine: str, address: str) -> Any:
    """The engine's own SDK."""
    if engine == "docker":
        docker = importlib.import_module("docker")
        return docker.DockerClient(base_url=address)
    return importlib.import_module("podman").PodmanClient(base_url=address)


async def bench_exec(engine: str, address: str, sandbox: Sandbox, sandbox_id: str) -> Row:
    """One command, against the same through the SDK."""
    sdk = sdk_of(engine, address)
    container = sdk.containers.get(f"ale-{sandbox_id}")

    def bare() -> None:
        code, _ = container.exec_run(["sh", "-c", "true"])
        assert code == 0

    ours, theirs = await compare(lambda: sandbox.exec("true"), bare, 50)
    sdk.close()
    return Row(
        f"exec, against {engine} exec by SDK",
        ours,
        theirs,
        f"{EXEC_AIM:.0f}x faster",
        ours * EXEC_AIM <= theirs,
    )


async def bench_open_close(engine: str, address: str, backend: SandboxBackend) -> Row:
    """A sandbox opened, used once, closed and removed, against the engine's own client."""
    # Podman's own client without its service would have other settings than the service.
    client = [engine, "--host", address]
    if engine == "podman":
        client = [engine, "--remote", "--url", address]

    async def ours() -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            await sandbox.exec("true")
        await backend.aclose()  # what is removed behind is part of it

    def bare() -> None:
        subprocess.run([*client, "run", "--rm", "--network=none", BUSYBOX, "true"], check=True)

    measured, floor = await compare(ours, bare, 20)
    return Row(
        "open, exec, close, gone",
        measured,
        floor,
        f"{OPEN_AIM}x",
        measured <= OPEN_AIM * floor,
    )


async def bench_crowd(backend: SandboxBackend) -> Row:
    """Many sandboxes at once against few at once: seconds for each."""

    async def episode(slots: asyncio.Semaphore) -> None:
        async with slots, backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for _ in range(10):
                await session.run("true")
            await sandbox.exec("true")

    async def all_of_them(at_once: int) -> float:
        slots = asyncio.Semaphore(at_once)
        begun = time.perf_counter()
        await asyncio.gather(*(episode(slots) for _ in range(CROWD)))
        await backend.aclose()
        return (time.perf_counter() - begun) / CROWD

    times = [(await all_of_them(CROWD), await all_of_them(FEW)) for _ in range(3)]
    together = statistics.median(one for one, _ in times)
    few = statistics.median(one for _, one in times)
    return Row(
        f"{CROWD} at once, against {FEW}",
        together,
        few,
        f"{CROWD_AIM}x",
        together <= CROWD_AIM * few,
    )


async def rows_of(engine: str, plugin: ModuleType) -> list[Row]:
    """Everything about one engine."""
    with tempfile.TemporaryDirectory() as name:
        options = plugin.ale_sandboxes()[0].options(image=BUSYBOX, root=Path(name) / "ways")
        address = plugin.address(options, os.environ)
        backend = plugin.build(options, BuildContext())
        try:
            async with backend.open(SandboxSpec()) as sandbox:
                rows = [
                    await bench_spawn(sandbox, "exec, against a bare spawn"),
                    await bench_exec(engine, address, sandbox, sandbox.id),
                ]
            rows.append(await bench_open_close(engine, address, backend))
            rows.append(await bench_crowd(backend))
        finally:
            await backend.aclose()
    return rows


def show(engine: str, rows: list[Row]) -> None:
    """As a table."""
    print(f"{engine:34}{'measured':>13}{'other':>13}{'ratio':>8}  aim")
    for row in rows:
        numbers = f"{row.ours * 1e3:10.3f} ms{row.other * 1e3:10.3f} ms{row.ours / row.other:7.2f}x"
        print(f"{row.what:34}{numbers}  {row.aim:16}{'ok' if row.met else 'MISSED'}", flush=True)


def main(engines: list[str]) -> int:
    """All of them; 1 where an aim is missed."""
    met = True
    for engine in engines or ENGINES:
        plugin = importlib.import_module(f"ale_sandbox_{engine}.plugin")
        found = plugin.probe()
        if not found.usable:
            print(f"{engine} can't run here: {found.reason}")
            continue
        try:
            provide([engine], BUSYBOX)
        except CannotMakeError as error:
            print(f"{engine}: no image: {error}")
            continue
        rows = asyncio.run(rows_of(engine, plugin))
        show(engine, rows)
        met = met and all(row.met for row in rows)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
