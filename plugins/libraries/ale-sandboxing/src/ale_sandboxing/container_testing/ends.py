"""Forks, snapshots, a killed host process: nothing may be left behind."""

import asyncio
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ale.testing.sandbox.probes import command_lines, host_processes
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.engine import Found
from ale_sandboxing.container.pool import NoProcessError
from ale_sandboxing.container.records import LABEL, parse
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.tools import (
    PATIENCE_S,
    TEST,
    Make,
    error_of,
    left_of,
    opened,
    out,
    tags_of,
)

_PLACES = {
    "docker": re.compile("docker/netns|docker.*[0-9a-f]{64}"),
    "podman": re.compile("(libpod|containers).*[0-9a-f]{64}"),
}
_KEYS = re.compile("[0-9a-f]{64}|netns/[0-9a-f]+")
"""What such a place is known by in the engine's description of a container."""
HOST = """
import asyncio, importlib, json, os, sys
from ale.plugin import BuildContext
from ale.types import SandboxSpec

async def main():
    module, options = sys.argv[1], json.loads(sys.argv[2])
    words = os.environ["WORDS"].split()
    plugin = importlib.import_module(module)
    cls = plugin.ale_sandboxes()[0].options
    tags = {**options["tags"], "run": "crashed"}
    backend = plugin.build(cls(**options["options"]), BuildContext(tags=tags))
    print("[]", flush=True)

    async def one(word):
        async with backend.open(SandboxSpec()) as box:
            await box.exec(f"(setsid sleep {word} &) ; echo data >file")
            twin = await box.fork()
            ref = await twin.snapshot()
            session = await twin.session()
            await session.run(f"sleep {word} &")
            print(json.dumps([box.id, twin.id, ref]), flush=True)
            await session.run(f"sleep {word}")

    await asyncio.gather(*map(one, words))

asyncio.run(main())
"""


class EndProbes:
    """Needs one more fixture, ``host``: the plugin's module and its options, JSON's types only."""

    async def test_a_fork_has_the_files_and_is_independent(self, make: Make) -> None:
        backend = make()
        async with opened(backend, env={"A": "1"}, memory_mb=128) as sandbox:
            await out(sandbox, "echo outside >/tmp/file; echo in >file")
            twin = await sandbox.fork()
            second = await twin.fork()
            await sandbox.close()
            assert await out(twin, "cat file /tmp/file; echo $A") == "in\noutside\n1"
            await twin.close()
            assert await out(second, "cat file") == "in"
            await second.close()
        assert _left(backend) == []

    async def test_a_snapshot_outlives_its_sandbox_and_other_backends_find_it(
        self, make: Make
    ) -> None:
        backend = make()
        async with opened(backend) as sandbox:
            await out(sandbox, "echo then >file")
            ref = await sandbox.snapshot()
        other = make()
        listed = {info.id: info for info in await other.list()}
        assert listed[ref].detail.startswith("snapshot image")
        async with other.restore(ref, SandboxSpec()) as restored:
            assert await out(restored, "cat file") == "then"
        await other.aclose()
        other._engine.remove_image(f"ale-snapshot:{ref}")
        await other.aclose()
        assert _left(other) == []

    async def test_a_volume_is_removed_with_its_container(self, make: Make) -> None:
        backend = make(read_only=True)
        async with opened(backend) as sandbox:
            mount = await out(sandbox, 'grep " $PWD " /proc/self/mountinfo')
            (volume,) = [name for name in _volumes(backend) if f"/{name}/" in mount]
        assert volume not in _volumes(backend)

    async def test_a_sandbox_removed_while_the_engine_lists_it_is_not_listed(
        self, make: Make
    ) -> None:
        backend = make()
        engine: Any = backend._engine
        remove, containers = engine.remove, engine.containers
        answered = threading.Event()

        def removed_late(container: str) -> None:
            assert answered.wait(PATIENCE_S)
            remove(container)

        def answered_late(label: str) -> Any:
            found = containers(label)
            answered.set()
            wait(list(backend._threads._pending), PATIENCE_S)
            return found

        async with opened(backend) as sandbox:
            engine.remove, engine.containers = removed_late, answered_late
            await sandbox.close()
            assert sandbox.id not in {info.id for info in await backend.list()}
        assert _left(backend) == []

    async def test_a_container_removed_by_others_is_an_error(self, make: Make) -> None:
        backend = make()
        async with opened(backend) as sandbox:
            backend._engine.remove(f"ale-{sandbox.id}")
            said = await _why_not_run(sandbox)
            assert "gone" in said or "ended" in said

    async def test_a_container_killed_from_outside_is_an_error_even_if_the_engine_notices_late(
        self, make: Make
    ) -> None:
        backend = make()
        async with opened(backend) as sandbox:
            engine: Any = backend._engine
            before, state = engine.state(f"ale-{sandbox.id}"), engine.state
            late = iter([before] * 3)
            engine.state = lambda name: next(late, None) or state(name)
            os.kill(before.pid, signal.SIGKILL)
            assert await _why_not_run(sandbox) == "has ended: exit code 137"

    async def test_a_container_killed_from_outside_is_an_error_if_its_supervisor_is_heard_of_last(
        self, make: Make
    ) -> None:
        for refused in (False, True):
            backend = make()
            async with opened(backend) as sandbox:
                await sandbox.exec("true")  # there is a worker, whose end is that of the container
                pool = sandbox._commands.pool(None)
                stream = sandbox._commands._supervisor._stream._transport
                assert stream is not None
                stream.pause_reading()
                os.kill(backend._engine.state(f"ale-{sandbox.id}").pid, signal.SIGKILL)
                await until(lambda: not pool._made, "the end of the workers")  # noqa: B023
                if refused:

                    async def no_process() -> NoReturn:
                        raise NoProcessError("as an engine says that has not noticed")

                    pool._start = no_process
                asyncio.get_running_loop().call_later(0.5, stream.resume_reading)
                assert await _why_not_run(sandbox) == "has ended: exit code 137"

    async def test_what_a_dead_host_process_leaves_ends_by_itself_and_prune_removes_it_alone(
        self, make: Make, host: tuple[str, dict[str, Any]]
    ) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        backend = make()
        async with opened(backend) as mine:
            process, (ids,) = start_host(host, [word])
            assert host_processes(word)
            listed = {info.id: info for info in await backend.list()}
            assert [listed[id].owner_alive for id in ids] == [True] * 3
            assert not set(ids) & {info.id for info in await backend.prune()}
            _kill(process)
            # Nobody asks for it: its streams are closed, so the supervisor exits.
            await until(lambda: not host_processes(word), "the processes' end")
            listed = {info.id: info for info in await backend.list()}
            assert [listed[id].owner_alive for id in ids] == [False] * 3
            assert listed[ids[0]].tags["run"] == "crashed"
            assert {info.id for info in await backend.prune()} >= set(ids)
            assert (await mine.exec("echo alive")).stdout == b"alive\n"
        assert _left(backend) == []

    async def test_random_kills_leave_nothing_after_prune(
        self, make: Make, host: tuple[str, dict[str, Any]]
    ) -> None:
        await kill_hosts(make, host, sandboxes=10, max_parallel=5)

    @pytest.mark.long
    async def test_five_hundred_random_kills_leave_nothing_after_prune(
        self, make: Make, host: tuple[str, dict[str, Any]]
    ) -> None:
        print(await kill_hosts(make, host, sandboxes=500, max_parallel=10))


async def _why_not_run(sandbox: ContainerSandbox) -> str:
    """Why no command runs in a container that has ended."""
    said = await error_of(sandbox.exec("sleep 60"))
    return said.removeprefix(f"the container of sandbox {sandbox.id} ")


async def kill_hosts(
    make: Make, host: tuple[str, dict[str, Any]], *, sandboxes: int, max_parallel: int
) -> str:
    """Kill host processes while they open, fork and run sandboxes; prune; check what is left.

    Returns:
        A summary of what was found and removed.
    """
    backend = make()
    before, traces = _leftovers(backend.name), set()
    words, containers = [], set()
    for _ in range(sandboxes // max_parallel):
        batch = [f"86400.{secrets.randbelow(10**9)}" for _ in range(max_parallel)]
        process, _ = start_host(host, batch, wait=False)
        time.sleep(random.uniform(0, 3))
        _kill(process)
        words += batch
        containers |= {found.id for found in _own(backend, backend._engine.containers(LABEL))}
        traces |= _leftovers(backend.name) - before
    kinds = Counter(line.split()[0] for line in _left(backend))
    started_at = time.monotonic()
    # The engine finishes what it was doing when the client died.
    deadline = started_at + max(PATIENCE_S, float(sandboxes))
    while time.monotonic() < deadline and (await backend.prune() or _left(backend)):
        time.sleep(0.3)
    took = time.monotonic() - started_at
    assert _left(backend) == []
    await until(lambda: not _running([*words, *containers]), "the end of all processes")
    await until(
        lambda: not (_leftovers(backend.name) & traces) - _in_use(backend.name, traces),
        "the end of all mounts and control groups",
    )
    await backend.aclose()
    left = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
    seen = f"{len(containers)} containers, {len(traces)} mounts and groups"
    return f"seen: {seen}; left: {left}; pruned in {took:.1f} s"


def _running(words: list[str]) -> list[str]:
    # Podman remembers for five minutes, by a process on the host, how one in a container has ended.
    lines = b"\n".join(line for line in command_lines().values() if b"--exit-delay" not in line)
    return [word for word in words if word.encode() in lines]


def _leftovers(engine: str) -> set[str]:
    """Mounts and control groups of an engine's containers."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    paths = {line.split()[4] for line in lines} | {path for path, _, _ in os.walk("/sys/fs/cgroup")}
    return {path for path in paths if _PLACES[engine].search(path)}


def _in_use(engine: str, paths: set[str]) -> set[str]:
    """Those of containers that the engine has: other tests may use it at the same time."""
    ids = subprocess.run([engine, "ps", "-aq", "--no-trunc"], stdout=subprocess.PIPE, check=True)
    # One that has gone meanwhile makes the command fail, after it has described the others.
    command = [engine, "inspect", *ids.stdout.decode().split()]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {path for path in paths if any(key in known for key in _KEYS.findall(path))}


def start_host(
    host: tuple[str, dict[str, Any]], words: list[str], *, wait: bool = True
) -> "tuple[subprocess.Popen[bytes], list[list[str]]]":
    """A process with one sandbox per word, which is in a command line there; `wait` for their ids:
    of a sandbox, its fork and a snapshot of that."""
    module, options = host
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, module, json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "WORDS": " ".join(words),
        },
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"[]\n", "the host process did not start"
    return process, [json.loads(process.stdout.readline()) for _ in words] if wait else []


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _volumes(backend: ContainerBackend) -> list[str]:
    command = [backend._engine.name, "volume", "ls", "--quiet"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split()


def _left(backend: ContainerBackend) -> list[str]:
    """Containers, images and volumes of this test's own."""
    own = _own(backend, left_of(backend._engine))
    mine = (parse(thing.labels[LABEL], thing.id) for thing in own)
    return [f"{record.kind} {record.id}" for record in mine]


def _own(backend: ContainerBackend, found: Iterable[Found]) -> list[Found]:
    """Those of this test: others may use the same engine."""
    test = backend._context.tags[TEST]
    return [each for each in found if tags_of(each).get(TEST) == test]
