"""What killed host processes leave behind is found and removed, and nothing else is."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox.probes import host_processes
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap import facts
from ale_sandboxing.process.testing import killed_hosts, mounted

Build = Callable[..., SandboxBackend]
PLUGIN = "ale_sandbox_bubblewrap.plugin"


def groups(found: facts.Facts) -> set[Path]:
    """Control groups of sandboxes, of this machine."""
    places = set(found.cgroups.places.values())
    return {path for place in places for path in place.glob("ale-*") if path.is_dir()}


async def kill_and_prune(
    make: Build, found: facts.Facts, folder: Path, *, sandboxes: int, concurrency: int
) -> int:
    """Kill host processes; prune now and then, and at the end; look. How many sandboxes it was."""
    before = groups(found)
    backend, opened = make(), 0
    environ = {"XDG_RUNTIME_DIR": str(folder)}
    words = []
    async with backend.open(SandboxSpec()) as mine:
        for number, host in enumerate(
            killed_hosts(
                PLUGIN, folder, environ, sandboxes=sandboxes, concurrency=concurrency, longest_s=1.5
            )
        ):
            words.append(host.word)
            opened += host.opened
            if number % 2:
                await backend.prune()
                assert host_processes(host.word) == []
        await backend.prune()
        assert [info.id for info in await backend.list()] == [mine.id]
        assert (await mine.exec("echo alive")).stdout == b"alive\n"
        assert mounted(str(folder)) != []
        store = folder / f"ale-bubblewrap-{os.geteuid()}"
        assert [path.name for path in (store / "layers").iterdir()] == list(mine.record.layers)  # type: ignore[attr-defined]
        assert len(list((store / "owners").iterdir())) == 1
    await backend.aclose()
    assert [word for word in words if host_processes(word)] == []
    assert mounted(str(folder)) == []
    left = groups(found) - before  # those of other tests on this machine end by themselves
    await until(lambda: not left & groups(found), "the end of the control groups")
    assert not store.exists()
    assert [path.name for path in (folder / "ale" / "bubblewrap").iterdir()] == ["lock"]
    return opened


async def test_what_killed_hosts_leave_is_removed_by_prune(
    make: Build, found: facts.Facts, tmp_path: Path
) -> None:
    assert await kill_and_prune(make, found, tmp_path, sandboxes=20, concurrency=4) >= 20


@pytest.mark.long
async def test_after_500_sandboxes_and_random_kills_prune_leaves_nothing(
    make: Build, found: facts.Facts, tmp_path: Path
) -> None:
    opened = await kill_and_prune(make, found, tmp_path, sandboxes=500, concurrency=10)
    assert opened >= 500


async def test_when_the_host_process_dies_its_sandboxes_end_by_themselves(
    make: Build, found: facts.Facts, tmp_path: Path
) -> None:
    """No `prune` is needed for that: what is left are files."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for host in killed_hosts(PLUGIN, tmp_path, environ, sandboxes=1, concurrency=2, longest_s=1.0):
        await until(lambda word=host.word: not host_processes(word), "the processes' end")
        await until(lambda: not mounted(str(tmp_path)), "the end of the mounts")
    await make().prune()


async def test_what_lives_is_spared(make: Build, found: facts.Facts, tmp_path: Path) -> None:
    one, two = make(), make()
    word = f"86400.{secrets.randbelow(10**9)}"
    async with one.open(SandboxSpec()) as box:
        ref = await box.snapshot()
        await box.exec(f"sleep {word} &")
        assert await two.prune() == []
        assert {info.id for info in await two.list()} == {box.id, ref}
        assert len(host_processes(word)) == 1
    async with one.restore(ref, SandboxSpec()) as box:
        assert (await box.exec("echo alive")).stdout == b"alive\n"
