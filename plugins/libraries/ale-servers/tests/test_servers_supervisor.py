# ruff: noqa: ASYNC110
"""A supervised program is started again after a crash, and ends with its parent."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ale.testing.waiting import until, wait_for
from ale_servers import supervisor
from ale_servers.supervisor import Command, is_alive, last_lines, supervised

PROGRAM = """
import os, sys
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def command(log: Path, program: str = PROGRAM) -> Command:
    return Command(argv=(sys.executable, "-c", program), log=log)


async def pids(log: Path, n: int) -> list[int]:
    await until(lambda: log.exists() and len(log.read_text().split()) >= n)
    return [int(each) for each in log.read_text().split()]


async def gone(pid: int) -> None:
    await until(lambda: not is_alive(pid))


async def test_it_is_started_again_after_a_crash_and_ended_after_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_WAIT_S", 0.01)
    said: list[str] = []
    log = tmp_path / "logs/a.log"
    async with supervised(command(log), said.append):
        (first,) = await pids(log, 1)
        os.kill(first, signal.SIGKILL)
        _, second = await pids(log, 2)
        assert is_alive(second)
    assert said == ["the server ended with status -9; started again in 0.01 s"]
    await gone(second)
    assert last_lines(log, 1) == str(second)


async def test_the_wait_grows_while_it_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(supervisor, "LONGEST_WAIT_S", 0.04)
    said: list[str] = []
    async with supervised(command(tmp_path / "log", "print(1); raise SystemExit(3)"), said.append):
        async with asyncio.timeout(20):
            while len(said) < 4:
                await asyncio.sleep(0.01)
    waits = [text.removeprefix("the server ended with status 3; ") for text in said[:4]]
    assert waits == [f"started again in {each} s" for each in (0.01, 0.02, 0.04, 0.04)]


async def test_a_program_that_was_given_something_wrong_is_not_started_again(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    async with supervised(command(tmp_path / "log", "raise SystemExit(2)"), said.append) as running:
        async with asyncio.timeout(60):
            await running
    assert said == ["the server ended with status 2; it is not started again"]


async def test_after_so_many_failures_in_a_row_it_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_WAIT_S", 0.01)
    said: list[str] = []
    made = command(tmp_path / "log", "print(1); raise SystemExit(1)")
    async with supervised(made, said.append, failures=3) as running:
        await running
    assert (tmp_path / "log").read_text().split() == ["1"] * 3
    assert said[-1] == (
        f"the server ended with status 1, 3 times in a row; it is not started again: "
        f"see {tmp_path / 'log'}"
    )


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import asyncio, sys\nfrom pathlib import Path\n"
            "from ale_servers.supervisor import Command, supervised\n"
            "async def main():\n"
            "    argv = (sys.executable, '-c', sys.argv[2])\n"
            "    async with supervised(Command(argv=argv, log=Path(sys.argv[1]))):\n"
            "        await asyncio.sleep(600)\n"
            "asyncio.run(main())",
            str(log),
            PROGRAM,
        ]
    )
    pid = int(wait_for(lambda: log.exists() and log.read_text().strip()))
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_alive(pid))


ENDED_BY_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), os._exit(0)))
print(os.getpid(), flush=True)
signal.pause()
"""


async def test_a_program_ends_when_the_process_that_ends_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ending = [sys.executable, "-m", "ale_servers.ending", sys.executable, "-c", ENDED_BY_SIGTERM]
    pipe = asyncio.subprocess.PIPE
    with log.open("w") as file:
        process = await asyncio.create_subprocess_exec(*ending, stdin=pipe, stdout=file)
    (pid,) = await pids(log, 1)
    process.kill()
    await process.wait()
    try:
        await gone(pid)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise
    assert last_lines(log, 1) == "asked to end"
