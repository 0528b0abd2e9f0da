"""Sandboxes in containers against the bare operations of the same machine and engine, in one run.

Run with ``python tests/bench/bench_sandbox_containers.py [docker] [podman]``. Exit status 1 where
an aim is missed. The image is the tests' busybox, made where it is missing.
"""

import asyncio
import importlib
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

from sandboxes import Row, bench_session_command, compare, many_at_once, report, spawn

from ale.plugin import BuildContext
from ale.protocols import Sandbox
from ale.types import SandboxSpec
from ale_sandboxing.container_testing.images import BUSYBOX, CannotMakeError, provide

ENGINES = ("docker", "podman")


async def bench_exec(sandbox: Sandbox) -> Row:
    """One command in a new shell, against a new shell on the host."""
    ours, bare = await compare(lambda: sandbox.exec("true"), spawn, 500)
    return "exec", ours, bare, "2.5x", ours <= 2.5 * bare


async def bench_exec_by_sdk(engine: str, address: str, sandbox: Sandbox) -> Row:
    """One command, against the same command through the engine's own SDK."""
    module = importlib.import_module(engine)
    sdk: Any = module.DockerClient if engine == "docker" else module.PodmanClient
    client = sdk(base_url=address)
    container = client.containers.get(f"ale-{sandbox.id}")

    def bare() -> None:
        code, _ = container.exec_run(["sh", "-c", "true"])
        assert code == 0

    ours, theirs = await compare(lambda: sandbox.exec("true"), bare, 50)
    client.close()
    return "exec, against the SDK's", ours, theirs, "0.1x", ours <= 0.1 * theirs


async def bench_open_close(engine: str, address: str, backend: Any) -> Row:
    """A sandbox opened, used once, closed and removed, against the engine's own client."""
    # Without --remote, Podman's client would not have the settings of the service.
    to = ["--remote", "--url", address] if engine == "podman" else ["--host", address]

    async def ours() -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            await sandbox.exec("true")
        await backend._threads.drain()  # what is removed behind is part of it

    def bare() -> None:
        command = [engine, *to, "run", "--rm", "--network=none", BUSYBOX, "true"]
        subprocess.run(command, check=True)

    measured, floor = await compare(ours, bare, 20)
    return "open, exec, close, gone", measured, floor, "1.1x", measured <= 1.1 * floor


async def rows_of(engine: str, plugin: ModuleType) -> list[Row]:
    """Everything about one engine."""
    kind = plugin.ale_sandboxes()[0].options
    options = importlib.import_module(kind.__module__)
    address = options.address(kind(), os.environ)
    backend = plugin.build(kind(image=BUSYBOX, host=address), BuildContext())

    async def episode() -> None:
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for _ in range(10):
                await session.run("true")
            await sandbox.exec("true")

    try:
        async with backend.open(SandboxSpec()) as sandbox:
            rows = [
                await bench_exec(sandbox),
                await bench_exec_by_sdk(engine, address, sandbox),
                await bench_session_command(sandbox),
            ]
        rows.append(await bench_open_close(engine, address, backend))
        rows.append(await many_at_once(episode, 3))
    finally:
        await backend.aclose()
    return rows


def bench(engine: str) -> int:
    """One engine's table; 1 where an aim is missed."""
    plugin = importlib.import_module(f"ale_sandbox_{engine}.plugin")
    found = plugin.probe()
    if not found.usable:
        print(f"{engine} can't run here: {found.reason}")
        return 0
    try:
        provide([engine], BUSYBOX)
    except CannotMakeError as error:
        print(f"no image for {engine}: {error}")
        return 0
    return report(f"{engine} sandbox", asyncio.run(rows_of(engine, plugin)))


if __name__ == "__main__":
    sys.exit(max([bench(engine) for engine in sys.argv[1:] or ENGINES]))
