"""A marked process is found, whatever it does; nobody else is."""

import asyncio
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale_sandbox_process import marks
from ale_sandbox_process.marks import Mark

MARK = Mark.of("/some/folder", "id")


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Process ids to be killed at the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)


def run(script: str, command: int = 3, env: dict[str, str] | None = None) -> None:
    line = MARK.script(command) + script
    given = {"PATH": "/usr/bin:/bin", marks.VARIABLE: MARK.variable(command), **(env or {})}
    subprocess.run(["sh", "-c", line], env=given, check=True, stdout=subprocess.DEVNULL)


def is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except FileNotFoundError:  # a shell on the way, which has ended
        return False


async def appeared() -> list[int]:
    """Wait until what has the mark is what the shells on the way have started."""
    for _ in range(2000):
        if (found := marks.find(MARK)) and all(map(is_sleep, found)):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("nobody with the mark came")


@pytest.mark.parametrize(
    "escape",
    [
        "sleep 600 &",
        "setsid sleep 600 &",
        "(setsid sh -c 'sleep 600 &' &)",
        "env -i setsid sleep 600 &",
        "(ulimit -m 100000; setsid sleep 600 &)",
    ],
)
async def test_a_marked_process_is_found_and_killed(escape: str, started: list[int]) -> None:
    run(escape)
    found = await appeared()
    started += found
    assert marks.find(MARK, 3) == found
    assert marks.find(MARK, 4) == []
    assert await marks.end(MARK, 4) == 0
    assert await marks.end(MARK, 3) >= 1
    assert marks.find(MARK) == []


async def test_a_process_without_the_mark_is_left_alone(started: list[int]) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:  # noqa: ASYNC220
        assert not MARK.on(other.pid)
        assert await marks.end(MARK) == 0
        assert other.poll() is None
        other.kill()


async def test_another_sandboxes_process_is_left_alone(started: list[int]) -> None:
    run("sleep 600 &")
    found = await appeared()
    started += found
    assert marks.find(Mark.of("/some/other", "id")) == []
    assert await marks.end(MARK) == len(found)


async def test_another_sandboxes_process_is_not_looked_at_closely(
    monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    """With a hundred sandboxes at once, that would be most of the work."""
    run("sleep 600 &")
    found = await appeared()
    started += found

    looked_at: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(Mark, "_in_environment", lambda _, pid, __: bool(looked_at.append(pid)))
        assert marks.find(Mark.of("/some/other", "id")) == []
    assert not set(looked_at) & set(found)
    assert await marks.end(MARK) == len(found)


async def test_who_asks_in_the_same_turn_shares_a_look_at_all_processes(
    monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    run("sleep 600 &")
    started += await appeared()
    others, looks = marks._others, 0

    def counted() -> Iterator[int]:
        nonlocal looks
        looks += 1
        return others()

    monkeypatch.setattr(marks, "_others", counted)
    nobodies = [Mark.of(f"/some/folder/{n}", "id") for n in range(5)]
    assert await asyncio.gather(*map(marks.end, nobodies)) == [0] * 5
    assert looks == 1
    assert await asyncio.gather(*map(marks.end, (*nobodies, MARK))) == [0] * 5 + [1]


async def test_a_look_does_not_end_with_one_of_those_who_asked_for_it() -> None:
    first = asyncio.ensure_future(marks.end(MARK))
    second = asyncio.ensure_future(marks.end(MARK))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 0
    assert await marks.end(MARK) == 0


def test_a_zombie_does_not_carry_the_mark() -> None:
    process = subprocess.Popen(["sh", "-c", MARK.script(1)])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not MARK.on(process.pid)
    process.wait()


def test_the_values_are_what_the_script_sets() -> None:
    soft, hard = MARK.values(7) or (0, 0)
    line = MARK.script(7) + "ulimit -Sm; ulimit -Hm"
    said = subprocess.run(["sh", "-c", line], check=True, capture_output=True).stdout.split()
    assert [int(number) * 1024 for number in said] == [soft, hard]
    assert soft < hard


def test_a_root_that_may_not_ask_the_kernel_reads_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> tuple[int, int]:
        raise PermissionError

    with subprocess.Popen(["sleep", "600"]) as process:
        MARK.put(process.pid, 5)
        monkeypatch.setattr(resource, "prlimit", refuse)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert MARK.on(process.pid, 5)
        assert not MARK.on(process.pid, 6)
        assert not MARK.on(os.getpid())
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert not MARK.on(process.pid, 5)
        process.kill()


async def test_what_is_not_marked_yet_is_found_among_orphans_alone(started: list[int]) -> None:
    """A shell between its start and its first line, whose host process was killed just then."""
    env = {marks.VARIABLE: MARK.variable(0)}
    with subprocess.Popen(["sleep", "600"], env=env) as newborn:  # noqa: ASYNC220
        started.append(newborn.pid)
        assert marks.find(MARK) == []
        assert await marks.end(MARK) == 0
        waiting = asyncio.ensure_future(asyncio.to_thread(newborn.wait))
        assert await marks.end_orphans(MARK) == 1
        assert await waiting == -signal.SIGKILL


async def test_who_will_not_end_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(marks, "_others", lambda: iter([4711]))
    monkeypatch.setattr(marks, "_limits_of", lambda _: MARK.values(1))
    monkeypatch.setattr(marks, "_is_zombie", lambda _: False)
    monkeypatch.setattr(marks, "_kill_one", lambda *_: None)
    monkeypatch.setattr(marks, "_PATIENCE_S", 0.05)
    with pytest.raises(SandboxError, match="4711"):
        await marks.end(MARK)
