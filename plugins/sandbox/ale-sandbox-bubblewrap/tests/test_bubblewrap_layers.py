"""A fork is a new layer: what both halves see, what is shared, what is copied, what is removed."""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap import layering
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox

Build = Callable[..., SandboxBackend]
SHOW = (
    "find . -printf '%p %y %m %l\\n' -type f -exec cat {} + | sort;"
    "find /etc /opt /usr/local /usr/bin -newer /workspace/.start -printf '%p %y %m\\n' | sort"
)


def store(folder: Path) -> Path:
    return folder / f"ale-bubblewrap-{os.geteuid()}"


def layers(folder: Path) -> set[str]:
    """Names of the layers on disk."""
    return {path.name for path in (store(folder) / "layers").iterdir()}


def layered(sandbox: Sandbox) -> bool:
    assert isinstance(sandbox, BubblewrapSandbox)
    if sandbox.capabilities.fork != "layer":
        pytest.skip("no layers on this machine")
    return True


async def show(sandbox: Sandbox) -> str:
    return (await sandbox.exec(SHOW)).stdout.decode()


async def test_a_fork_shares_what_was_written(make: Build, tmp_path: Path) -> None:
    async with make().open(SandboxSpec()) as box:
        assert layered(box)
        await box.exec("dd if=/dev/zero of=big bs=1M count=20 2>/dev/null")
        twin = await box.fork()
        assert isinstance(twin, BubblewrapSandbox)
        assert isinstance(box, BubblewrapSandbox)
        assert box.record.layers[1:] == twin.record.layers[1:] != ()
        blocks = sum(path.stat().st_blocks for path in store(tmp_path).rglob("*") if path.is_file())
        assert blocks * 512 < 25 << 20
        assert (await twin.exec("wc -c < big")).stdout == b"20971520\n"
        await twin.close()


async def test_a_fork_of_what_was_not_written_to_adds_no_layer(backend: SandboxBackend) -> None:
    async with backend.open(SandboxSpec()) as box:
        assert layered(box)
        twin = await box.fork()
        assert isinstance(twin, BubblewrapSandbox)
        assert isinstance(box, BubblewrapSandbox)
        assert len(box.record.layers) == len(twin.record.layers) == 1
        await twin.close()


async def test_both_halves_go_on_by_themselves(box: Sandbox) -> None:
    await box.exec("mkdir d; echo both > d/f; echo both > /etc/both; rm /usr/bin/seq")
    twin = await box.fork()
    await box.exec("echo one > d/f; echo one > /usr/local/bin/one; rm /etc/both")
    await twin.exec("rm -r d; echo two > /opt/two; echo two > d")
    assert (await box.exec("cat d/f; ls /etc/both /opt/two")).stdout == b"one\n"
    two = await twin.exec("cat d /etc/both /opt/two; ls /usr/local/bin/one; command -v seq")
    assert two.stdout == b"two\nboth\ntwo\n"
    await twin.close()


async def test_a_session_stays_where_it_was(box: Sandbox) -> None:
    session = await box.session()
    await session.run("mkdir -p 'a b/c'; ln -s 'a b/c' way; cd way; x=5; cd ..; cd way")
    before = (
        await session.run('pwd; echo "$OLDPWD" "$x"; cd - >/dev/null; cd - >/dev/null')
    ).stdout
    assert before == b"/workspace/way\n/workspace 5\n"
    await session.run("echo before > file")
    twin = await box.fork()
    after = await session.run('pwd; pwd -P; echo "$OLDPWD" "$x"; cat file; echo after > new; ls')
    assert after.stdout == (b"/workspace/way\n/workspace/a b/c\n/workspace 5\nbefore\nfile\nnew\n")
    assert (await box.exec("cat 'a b/c/new'")).stdout == b"after\n"
    assert (await twin.exec("ls 'a b/c'")).stdout == b"file\n"
    await session.run("echo more >> file; (exit 3)")
    assert (await session.run("echo $?; cat file")).stdout == b"3\nbefore\nmore\n"
    await twin.close()


async def test_a_session_waits_while_the_layers_change(box: Sandbox) -> None:
    assert isinstance(box, BubblewrapSandbox)
    session = await box.session()
    await session.run("echo before > file")
    async with box.gate:
        running = asyncio.ensure_future(session.run("echo after > file"))
        await asyncio.sleep(0.1)
        assert (await box.read("file"), running.done()) == (b"before\n", False)
    assert (await running).exit_code == 0
    assert await box.read("file") == b"after\n"


async def test_an_open_file_for_reading_stays_what_it_is(box: Sandbox) -> None:
    session = await box.session()
    await session.run("echo line > f; exec 5<f")
    twin = await box.fork()
    await session.run("rm f")
    assert (await session.run("cat <&5")).stdout == b"line\n"
    await twin.close()


@pytest.mark.parametrize(
    "command",
    [
        "exec 5>log; echo first >&5",
        "(while :; do echo x >> log; sleep 0.02; done) &",
        "(cd /; sleep 600) & echo first > log",
    ],
)
async def test_a_sandbox_that_is_busy_is_copied_and_goes_on(box: Sandbox, command: str) -> None:
    session = await box.session()
    await session.run(f"{command}\nmkdir d; echo old > d/f; rm /usr/bin/seq; sleep 0.1")
    twin = await box.fork()
    assert isinstance(twin, BubblewrapSandbox)
    assert isinstance(box, BubblewrapSandbox)
    assert len(twin.record.layers) == len(box.record.layers) == 1
    assert (await twin.exec("cat d/f; head -c 1 log; ls /usr/bin/seq")).exit_code == 2
    await session.run("echo second >&5; echo here > d/g") if "5" in command else None
    at_fork = (await twin.exec("cat log")).stdout
    await asyncio.sleep(0.1)
    assert (await twin.exec("cat log; ls d")).stdout == at_fork + b"f\n"
    await session.run("rm -r d")
    assert (await twin.exec("cat d/f")).stdout == b"old\n"
    await twin.close()


async def test_what_is_busy_after_a_fork_is_copied_as_it_is_now(box: Sandbox) -> None:
    assert layered(box)
    await box.exec("echo old > file")
    await (await box.fork()).close()
    await box.exec("echo new > file")
    session = await box.session()
    await session.run("sleep 1000 &")
    twin = await box.fork()
    assert (await twin.exec("cat file")).stdout == b"new\n"
    await twin.close()


async def test_commands_during_a_fork_lose_nothing(box: Sandbox) -> None:
    session = await box.session()

    async def count(run: Callable[[str], object], name: str) -> None:
        for number in range(20):
            await run(f"echo {number} >> {name}")  # type: ignore[misc]

    twins: list[Sandbox] = []

    async def fork() -> None:
        for _ in range(4):
            twins.append(await box.fork())
            await asyncio.sleep(0.01)

    await asyncio.gather(count(session.run, "one"), count(box.exec, "two"), fork())
    numbers = b"".join(b"%d\n" % number for number in range(20))
    assert await box.read("one") == await box.read("two") == numbers
    for twin in twins:
        for name in ("one", "two"):
            assert numbers.startswith((await twin.exec(f"cat {name}")).stdout)
        await twin.close()


def step(choose: random.Random) -> str:
    """A command that changes the tree."""
    names = ["a", "b", "c", "a/x", "a/y", "b/x", "b/x/y", "/etc/k", "/usr/local/k", "/opt/k/l"]
    one, two = choose.sample(names, 2)
    return choose.choice(
        [
            f"mkdir -p {one}",
            f"rm -rf {one}",
            f"rm -rf {one}; mkdir -p {one}; echo $RANDOM > {one}/new",
            f"rm -rf {one}; echo {choose.random()} > {one}",
            f"echo {choose.random()} >> {one}",
            f"ln -sfn {two} {one}",
            f"mv -T {one} {two}",
            f"chmod {choose.choice(['700', '755', '711'])} {one}",
            f"rm -f {one}; ln {two} {one}",
            "rm -f /usr/bin/seq /etc/services",
        ]
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))]
)
@pytest.mark.parametrize("most", [3, 32])
async def test_however_deep_the_layers_every_fork_shows_the_same(
    backend: SandboxBackend, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    """Both with stacks that are merged and without."""
    monkeypatch.setattr(layering, "MOST_LAYERS", most)
    choose = random.Random(f"{seed}")
    async with backend.open(SandboxSpec()) as first:
        assert layered(first)
        await first.exec("touch -d '1 second ago' .start")
        box: Sandbox = first
        for _ in range(8):
            for _ in range(4):
                await box.exec(step(choose))
            shown = await show(box)
            twin = await box.fork()
            assert await show(box) == shown
            assert await show(twin) == shown
            if box is not first:
                await box.close()
            box = twin
        assert isinstance(box, BubblewrapSandbox)
        assert len(box.record.layers) <= (6 if most == 3 else 9)
        if box is not first:
            await box.close()


async def test_many_forks_of_one_sandbox_stay_shallow(
    make: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layering, "MOST_LAYERS", 4)
    async with make().open(SandboxSpec()) as box:
        assert layered(box)
        assert isinstance(box, BubblewrapSandbox)
        for number in range(12):
            await box.exec(f"echo {number} > {number}; echo {number} > same")
            await (await box.fork()).close()
            assert len(box.record.layers) <= 6
            assert layers(tmp_path) == set(box.record.layers)
        assert (await box.exec("ls | wc -l; cat same 3")).stdout == b"13\n11\n3\n"


async def test_a_layer_is_removed_with_the_last_that_uses_it(make: Build, tmp_path: Path) -> None:
    backend = make()
    async with backend.open(SandboxSpec()) as box:
        assert layered(box)
        await box.exec("echo x > file")
        twin = await box.fork()
        grandchild = await twin.fork()
        assert len(layers(tmp_path)) == 4
        ref = await box.snapshot()
    assert len(layers(tmp_path)) == 3
    await twin.close()
    assert len(layers(tmp_path)) == 2
    await grandchild.close()
    assert len(layers(tmp_path)) == 1
    async with backend.restore(ref, SandboxSpec()) as again:
        assert await again.read("file") == b"x\n"
        assert len(layers(tmp_path)) == 2
    assert len(layers(tmp_path)) == 1


async def test_a_snapshot_is_restored_by_another_backend(make: Build) -> None:
    one, two = make(), make()
    async with one.open(SandboxSpec()) as box:
        await box.exec("echo kept > file; rm /usr/bin/seq; mkdir -p /opt/tool")
        ref = await box.snapshot()
    async with two.restore(ref, SandboxSpec()) as box:
        result = await box.exec("cat file; ls -d /opt/tool; command -v seq")
        assert result.stdout == b"kept\n/opt/tool\n"


async def test_the_folder_goes_with_the_last_backend(make: Build, tmp_path: Path) -> None:
    one, two = make(), make()
    for backend in (one, two):
        async with backend.open(SandboxSpec()) as box:
            await box.exec("echo x > file")
    await one.aclose()
    assert store(tmp_path).exists()
    await two.aclose()
    assert not store(tmp_path).exists()


async def test_a_fork_has_its_own_limits_and_the_same_environment(backend: SandboxBackend) -> None:
    async with backend.open(SandboxSpec(env={"NAME": "value"}, tags={"t": "u"})) as box:
        await box.exec("echo x > file")
        twin = await box.fork()
        assert (await twin.exec("echo $NAME; pwd")).stdout == b"value\n/workspace\n"
        (info,) = [info for info in await backend.list() if info.id == twin.id]
        assert info.tags["t"] == "u"
        await twin.close()


async def test_the_first_process_of_a_fork_does_not_run_what_was_changed(box: Sandbox) -> None:
    """It must not be possible to plant something that outlives `end_processes`."""
    await box.exec("rm /usr/bin/sleep /bin/sh; echo /opt/evil.so > /etc/ld.so.preload")
    twin = await box.fork()
    result = await twin.exec("grep -c evil /proc/1/maps; tr '\\0' ' ' < /proc/1/cmdline")
    assert result.stdout.endswith(b"/dev/ale/bin/sleep 2147483647 ")
    await twin.close()
