"""A tagged process is found, whatever it does; other processes are not."""

import asyncio
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.testing.waiting import until
from ale_sandboxing.process import process_tags
from ale_sandboxing.process.process_tags import ProcessTag

TAG = ProcessTag.of("/some/folder", "id")


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Process ids to be killed at the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)


def run(script: str, command: int = 3, env: dict[str, str] | None = None) -> None:
    line = TAG.script(command) + script
    variables = {
        "PATH": "/usr/bin:/bin",
        process_tags.VARIABLE: TAG.variable(command),
        **(env or {}),
    }
    subprocess.run(["sh", "-c", line], env=variables, check=True, stdout=subprocess.DEVNULL)


def is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except FileNotFoundError:  # a shell on the way, which has ended
        return False


async def appeared() -> list[int]:
    """Wait until only the final processes carry the tag, not the shells before them."""
    found: list[int] = await until(
        lambda: all(map(is_sleep, tagged := process_tags.find(TAG))) and tagged
    )
    return found


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
async def test_a_tagged_process_is_found_and_killed(escape: str, started: list[int]) -> None:
    run(escape)
    found = await appeared()
    started += found
    assert process_tags.find(TAG, 3) == found
    assert process_tags.find(TAG, 4) == []
    assert await process_tags.end(TAG, 4) == 0
    assert await process_tags.end(TAG, 3) >= 1
    assert process_tags.find(TAG) == []


async def test_an_untagged_process_is_left_alone(started: list[int]) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:  # noqa: ASYNC220
        assert not TAG.carried_by(other.pid)
        assert await process_tags.end(TAG) == 0
        assert other.poll() is None
        other.kill()


async def test_another_sandboxes_process_is_left_alone(started: list[int]) -> None:
    run("sleep 600 &")
    found = await appeared()
    started += found
    assert process_tags.find(ProcessTag.of("/some/other", "id")) == []
    assert await process_tags.end(TAG) == len(found)


async def test_the_environment_of_another_sandboxes_process_is_not_read(
    monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    """With a hundred open sandboxes, that would be most of the work."""
    run("sleep 600 &")
    found = await appeared()
    started += found

    looked_at: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            ProcessTag, "_named_in_environment", lambda _, pid, __: bool(looked_at.append(pid))
        )
        assert process_tags.find(ProcessTag.of("/some/other", "id")) == []
    assert not set(looked_at) & set(found)
    assert await process_tags.end(TAG) == len(found)


async def test_calls_in_the_same_turn_share_one_scan(
    monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    run("sleep 600 &")
    started += await appeared()
    others, scans = process_tags._other_pids, 0

    def counted() -> Iterator[int]:
        nonlocal scans
        scans += 1
        return others()

    monkeypatch.setattr(process_tags, "_other_pids", counted)
    nobodies = [ProcessTag.of(f"/some/folder/{n}", "id") for n in range(5)]
    assert await asyncio.gather(*map(process_tags.end, nobodies)) == [0] * 5
    assert scans == 1
    assert await asyncio.gather(*map(process_tags.end, (*nobodies, TAG))) == [0] * 5 + [1]


async def test_cancelling_one_caller_does_not_cancel_the_shared_scan() -> None:
    first = asyncio.ensure_future(process_tags.end(TAG))
    second = asyncio.ensure_future(process_tags.end(TAG))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 0
    assert await process_tags.end(TAG) == 0


async def test_a_scan_outlives_the_end_of_all_tasks_since_sandboxes_are_closed_then() -> None:
    waiting = asyncio.ensure_future(process_tags.end(TAG))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as `asyncio.run` does at its end
        task.cancel()
    assert await process_tags.end(TAG) == 0
    assert waiting.cancelled()


async def test_every_caller_of_a_scan_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Iterator[int]:
        raise ValueError("not a process")

    monkeypatch.setattr(process_tags, "_other_pids", failing)
    ends = asyncio.gather(*(process_tags.end(TAG) for _ in range(2)), return_exceptions=True)
    assert [str(end) for end in await asyncio.wait_for(ends, 60)] == ["not a process"] * 2


def test_limits_of_a_process_that_is_just_ending_are_none() -> None:
    own = Path("/proc/self/limits").read_bytes().replace(b"Max resident set", b"Max nothing")
    line = b"Max resident set          %s %s bytes     \n"
    assert process_tags.parsed_limits(b"") is None
    assert process_tags.parsed_limits(own) is None
    assert process_tags.parsed_limits(own + line % (b"1024", b"2048")) == (1024, 2048)
    assert process_tags.parsed_limits(own + line % (b"unlimited", b"unlimited")) is None


def test_a_zombie_does_not_count() -> None:
    process = subprocess.Popen(["sh", "-c", TAG.script(1)])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not TAG.carried_by(process.pid)
    process.wait()


def test_the_values_are_what_the_script_sets() -> None:
    soft_kib, hard_kib = TAG.values(7) or (0, 0)
    line = TAG.script(7) + "ulimit -Sm; ulimit -Hm"
    output = subprocess.run(["sh", "-c", line], check=True, capture_output=True).stdout.split()
    assert [int(number) * 1024 for number in output] == [soft_kib, hard_kib]
    assert soft_kib < hard_kib


def test_a_root_that_may_not_ask_the_kernel_reads_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> tuple[int, int]:
        raise PermissionError

    with subprocess.Popen(["sleep", "600"]) as process:
        TAG.apply(process.pid, 5)
        monkeypatch.setattr(resource, "prlimit", refuse)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert TAG.carried_by(process.pid, 5)
        assert not TAG.carried_by(process.pid, 6)
        assert not TAG.carried_by(os.getpid())
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert not TAG.carried_by(process.pid, 5)
        process.kill()


async def test_an_untagged_process_is_found_only_by_end_orphans(started: list[int]) -> None:
    """A shell between its start and its first line, whose host process was killed just then."""
    env = {process_tags.VARIABLE: TAG.variable(0)}
    with subprocess.Popen(["sleep", "600"], env=env) as untagged:  # noqa: ASYNC220
        started.append(untagged.pid)
        assert process_tags.find(TAG) == []
        assert await process_tags.end(TAG) == 0
        waiting = asyncio.ensure_future(asyncio.to_thread(untagged.wait))
        assert await process_tags.end_orphans(TAG) == 1
        assert await waiting == -signal.SIGKILL


async def test_a_process_that_does_not_end_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process_tags, "_other_pids", lambda: iter([4711]))
    monkeypatch.setattr(process_tags, "_limits_of", lambda _: TAG.values(1))
    monkeypatch.setattr(process_tags, "_is_zombie", lambda _: False)
    monkeypatch.setattr(process_tags, "_kill_pid", lambda *_: None)
    monkeypatch.setattr(process_tags, "_TIMEOUT_S", 0.05)
    with pytest.raises(SandboxError, match="4711"):
        await process_tags.end(TAG)
