"""What a killed host process leaves behind is found and removed, and nothing else is."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.plugin import BuildContext
from ale.protocols import SandboxBackend
from ale.testing.fakes import ManualClock
from ale.testing.sandbox.probes import host_processes
from ale.testing.waiting import until
from ale.types import ExecResult, SandboxSpec
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.plugin import build
from ale_sandboxing.process.testing import killed_hosts

NOBODY = 65534

Make = Callable[..., SandboxBackend]

HOST = """
import asyncio, json, sys
from pathlib import Path
from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.plugin import build

async def main():
    root, runtime, word = sys.argv[1:]
    context = BuildContext(environ={"XDG_RUNTIME_DIR": runtime}, tags={"run": "crashed"})
    backend = build(LocalOptions(root=Path(root)), context)
    async with backend.open(SandboxSpec()) as one, backend.open(SandboxSpec()) as two:
        running = [
            asyncio.ensure_future(one.exec(f"(setsid sleep {word} &) ; sleep {word}")),
            asyncio.ensure_future((await two.session()).run(f"sleep {word} & sleep {word}")),
        ]
        await two.exec("echo > file; sleep 0.2")
        ref = await two.snapshot()
        print(json.dumps([one.id, two.id, ref, one.workdir, two.workdir]), flush=True)
        await asyncio.gather(*running)

asyncio.run(main())
"""


async def test_what_a_killed_host_leaves_is_found_and_removed(
    make: Make, environ: dict[str, str], tmp_path: Path
) -> None:
    word = f"86400.{secrets.randbelow(10**9)}"
    runtime = environ["XDG_RUNTIME_DIR"]
    backend = make()
    async with backend.open(SandboxSpec()) as mine:
        host = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", HOST, str(tmp_path), runtime, word],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert host.stdout is not None
        *left, one_folder, two_folder = json.loads(host.stdout.readline())
        assert await backend.prune() == []
        assert {i.id: i.owner_alive for i in await backend.list() if i.id in left} == {
            id: True for id in left
        }
        await until(lambda: len(host_processes(word)) >= 4)
        host.send_signal(signal.SIGKILL)
        host.wait()
        host.stdout.close()

        listed = {info.id: info for info in await backend.list()}
        assert listed.keys() == {mine.id, *left}
        assert [listed[id].owner_alive for id in left] == [False] * 3
        assert listed[left[0]].tags == {"run": "crashed"}
        assert listed[mine.id].owner_alive

        removed = await backend.prune()
        assert {info.id for info in removed} == set(left)
        assert host_processes(word) == []
        assert not Path(one_folder).parent.exists()
        assert not Path(two_folder).parent.exists()
        assert [info.id for info in await backend.list()] == [mine.id]
        assert (await mine.exec("echo alive")).stdout == b"alive\n"


async def kill_and_prune(
    backend: SandboxBackend,
    environ: dict[str, str],
    folder: Path,
    *,
    sandboxes: int,
    concurrency: int,
) -> int:
    """Kill host processes; prune now and then, and at the end; look. How many sandboxes it was."""
    opened, words = 0, []
    top = folder / f"ale-{os.geteuid()}"
    async with backend.open(SandboxSpec()) as mine:
        for number, host in enumerate(
            killed_hosts(
                "ale_sandbox_local.plugin",
                folder,
                environ,
                sandboxes=sandboxes,
                concurrency=concurrency,
                longest_s=1.5,
            )
        ):
            words.append(host.word)
            opened += host.opened
            if number % 2:
                await backend.prune()
                assert host_processes(host.word) == []
        await backend.prune()
        assert [info.id for info in await backend.list()] == [mine.id]
        assert [path.name for path in top.iterdir()] == [mine.id]
        assert (await mine.exec("echo alive")).stdout == b"alive\n"
    assert [word for word in words if host_processes(word)] == []
    assert list(top.iterdir()) == []
    assert list((Path(environ["XDG_RUNTIME_DIR"]) / "ale" / "local").iterdir()) == []
    return opened


async def test_what_hosts_killed_at_random_leave_is_removed_by_prune(
    backend: SandboxBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    assert await kill_and_prune(backend, environ, tmp_path, sandboxes=20, concurrency=4) >= 20


@pytest.mark.long
async def test_after_500_sandboxes_and_random_kills_prune_leaves_nothing(
    backend: SandboxBackend, environ: dict[str, str], tmp_path: Path
) -> None:
    assert await kill_and_prune(backend, environ, tmp_path, sandboxes=500, concurrency=10) >= 500


async def test_a_record_of_another_process_with_the_same_id_is_dead(
    make: Make, environ: dict[str, str]
) -> None:
    """Process ids come back: the start time and the boot tell the owners apart."""
    backend = make()
    for change in ({"start": 1}, {"boot": "another"}):
        made = backend.open(SandboxSpec())
        sandbox = await made.__aenter__()
        (path,) = (Path(environ["XDG_RUNTIME_DIR"]) / "ale" / "local").glob("*.json")
        record = json.loads(path.read_text())
        record["owner"].update(change)
        path.write_text(json.dumps(record))
        assert [info.id for info in await backend.prune()] == [sandbox.id]
        assert not Path(sandbox.workdir).exists()
        await made.__aexit__(None, None, None)


async def test_an_owner_that_cannot_be_seen_is_left_alone(
    make: Make, environ: dict[str, str]
) -> None:
    backend = make()
    async with backend.open(SandboxSpec()) as sandbox:
        (path,) = (Path(environ["XDG_RUNTIME_DIR"]) / "ale" / "local").glob("*.json")
        record = json.loads(path.read_text())
        record["owner"].update(pid=1, namespace=1)
        path.write_text(json.dumps(record))
        assert await backend.prune() == []
        assert (await sandbox.exec("echo alive")).stdout == b"alive\n"


def test_an_ordinary_user_copies_what_is_closed_to_everybody() -> None:
    """Root may read everything, so the test becomes another user."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "runtime").mkdir()
        if not os.geteuid():
            for path in (top, top / "runtime"):
                os.chown(path, NOBODY, NOBODY)
        context = BuildContext(environ={"XDG_RUNTIME_DIR": str(top / "runtime")})
        backend = build(LocalOptions(root=top), context)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if not os.geteuid():
                    os.setgroups([])
                    os.setresgid(NOBODY, NOBODY, NOBODY)
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                asyncio.run(_copies_closed_folders(build(LocalOptions(root=top), context)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert asyncio.run(backend.list()) == []
        assert [path.name for path in top.iterdir() if path.name != "runtime"] in (
            [f"ale-{NOBODY}"],
            [f"ale-{os.geteuid()}"],
        )


async def _copies_closed_folders(backend: SandboxBackend) -> None:
    async with backend.open(SandboxSpec()) as box:
        await box.exec("mkdir -p a/b; echo kept > a/b/file; chmod 000 a/b/file a/b a")
        twin = await box.fork()
        ref = await box.snapshot()
        for one in (box, twin):
            modes = await one.exec(
                "stat -c %a a; chmod 700 a; stat -c %a a/b; chmod 700 a/b;"
                "stat -c %a a/b/file; chmod 600 a/b/file; cat a/b/file"
            )
            assert modes.stdout == b"0\n0\n0\nkept\n", modes
        await twin.close()
        async with backend.restore(ref, SandboxSpec()) as again:
            assert (await again.exec("stat -c %a a")).stdout == b"0\n"
    for info in await backend.list():
        assert info.id == ref
    for path in Path(str(backend.records.folder)).glob("*.json"):  # type: ignore[attr-defined]
        record = json.loads(path.read_text())
        record["owner"].update(start=1)
        path.write_text(json.dumps(record))
    assert [info.id for info in await backend.prune()] == [ref]


async def test_a_record_that_cannot_be_read_is_named(make: Make, environ: dict[str, str]) -> None:
    backend = make()
    async with backend.open(SandboxSpec()):
        broken = Path(environ["XDG_RUNTIME_DIR"]) / "ale" / "local" / "00000000.json"
        broken.write_text("{")
        with pytest.raises(SandboxError, match=r"00000000\.json"):
            await backend.list()


async def test_what_can_not_be_removed_is_named_and_the_rest_is_removed(
    make: Make, environ: dict[str, str], tmp_path: Path
) -> None:
    backend = make()
    made = [backend.open(SandboxSpec()) for _ in range(3)]
    boxes = [await one.__aenter__() for one in made]
    await boxes[1].exec("mkdir a a/b; echo 1 > a/keep; echo 2 > a/b/other; echo 3 > more")
    keep = Path(boxes[1].workdir, "a", "keep")
    if os.geteuid() or subprocess.run(["chattr", "+i", keep], check=False).returncode:  # noqa: ASYNC221
        pytest.skip("this user or file system has no immutable files")
    for path in (Path(environ["XDG_RUNTIME_DIR"]) / "ale" / "local").glob("*.json"):
        record = json.loads(path.read_text())
        record["owner"].update(start=1)  # of a process that has ended
        path.write_text(json.dumps(record))
    (path.parent / "00000000.json").write_text("{")
    try:
        with pytest.raises(
            SandboxError, match=f"{boxes[1].id}: .*a/keep .*not permitted"
        ) as caught:
            await backend.prune()
        assert boxes[1].id in str(caught.value)
        assert "00000000.json" in str(caught.value)
        (top,) = (tmp_path / f"ale-{os.geteuid()}").iterdir()
        assert top.name == boxes[1].id
        assert [path.name for path in top.rglob("*") if path.is_file()] == ["keep"]
    finally:
        for path in tmp_path.rglob("keep"):
            subprocess.run(["chattr", "-i", path], check=True)  # noqa: ASYNC221
    (Path(environ["XDG_RUNTIME_DIR"]) / "ale" / "local" / "00000000.json").unlink()
    assert [info.id for info in await backend.prune()] == [boxes[1].id]


async def test_an_id_that_is_taken_is_not_used_twice(make: Make) -> None:
    ids = iter(["a", "a", "b"])
    backend = make(context={"new_id": lambda: next(ids)})
    async with backend.open(SandboxSpec()) as one, backend.open(SandboxSpec()) as two:
        assert (one.id, two.id) == ("a", "b")


async def test_clock_and_ids_come_from_the_context_alone(make: Make, tmp_path: Path) -> None:
    async def once() -> list[object]:
        numbers = iter(range(100))
        context = {
            "clock": ManualClock(tick=0.5),
            "monotonic": ManualClock(tick=0.25),
            "new_id": lambda: f"id{next(numbers)}",
            "tags": {"run": "r"},
        }
        backend = make(context=context)
        async with backend.open(SandboxSpec(tags={"episode": "e"})) as sandbox:
            session = await sandbox.session()
            seen: list[object] = [
                sandbox.id,
                sandbox.workdir,
                await sandbox.exec("pwd; env; echo $0; nosuch"),
                await session.run("pwd; env; nosuch; echo $?"),
                await backend.list(),
            ]
            twin = await sandbox.fork()
            seen += [twin.id, await twin.exec("pwd; env")]
            await twin.close()
        return seen

    first, second = await once(), await once()
    assert first == second
    results = [entry for entry in first if isinstance(entry, ExecResult)]
    assert [result.duration_s for result in results] == [0.25] * 3
    assert first[:2] == ["id0", f"{tmp_path}/ale-{os.geteuid()}/id0/work"]
