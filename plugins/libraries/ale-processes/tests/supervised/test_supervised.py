"""Processes are watched: what can't be started is an error, what is lost is started again."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from attrs import frozen

from ale.errors import LaunchError
from ale.protocols import LOST, Launch, Process, Role
from ale_processes.supervised import Child, Ended, Supervised


@frozen
class One:
    process: Process

    @property
    def name(self) -> str:
        return self.process.name


def part(name: str, text: str, role: Role = "worker") -> One:
    return One(Process(name=name, role=role, command=("bash", "-c", text)))


async def start(launch: Launch, one: One) -> Child:
    log = launch.log(one.name)
    return await Child.start(one.process.command, environ=dict(os.environ), log=log)


def supervised(folder: Path, run: One, *others: One, restarts: int = 0) -> Supervised[One]:
    launch = Launch(name="r", directory=folder / "r", run=run.process, restarts=restarts)
    made = Supervised(launch, partial(start, launch), 1.0, print)
    made.start([run, *others])
    return made


async def test_what_can_not_be_started_ends_the_launch_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "r" / "logs" / "work.log").mkdir(parents=True)
    made = supervised(tmp_path, part("run", "sleep 600", "run"), part("work", "sleep 600"))
    with pytest.raises(LaunchError, match=r"work can't be started: .*directory"):
        await asyncio.wait_for(made.wait(), 60)


async def test_a_process_that_waits_for_its_place_is_ended_by_a_signal(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(one: One) -> Child:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    run = part("run", "true", "run")
    made = Supervised(Launch(name="r", directory=tmp_path, run=run.process), never, 1.0, print)
    made.start([run, part("work", "true")])
    await asked.wait()
    await made.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(made.wait(), 60) == 128 + signal.SIGINT


async def test_a_lost_worker_ends_the_run_after_its_restarts(tmp_path: Path) -> None:
    count = f"echo x >> {tmp_path}/starts; exit 3"
    made = supervised(tmp_path, part("run", "sleep 600", "run"), part("work", count), restarts=2)
    assert await asyncio.wait_for(made.wait(), 60) == LOST
    assert (tmp_path / "starts").read_text() == "x\n" * 3


async def test_a_signal_for_a_process_that_is_gone_goes_to_the_one_that_was_started(
    tmp_path: Path,
) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    child = await Child.start(
        ("sleep", "600"), environ=dict(os.environ), log=tmp_path / "l", target=lambda: gone.pid
    )
    await child.send(signal.SIGTERM)
    assert await asyncio.wait_for(child.wait(), 60) == Ended(-signal.SIGTERM)


async def test_the_whole_group_of_a_child_ends_with_it(tmp_path: Path) -> None:
    text = f"sleep 600 & echo $! > {tmp_path}/left"
    child = await Child.start(("bash", "-c", text), environ=dict(os.environ), log=tmp_path / "l")
    assert await child.wait() == Ended(0)
    left = Path("/proc", (tmp_path / "left").read_text().strip(), "stat")
    async with asyncio.timeout(60):
        while left.exists() and left.read_text().split()[2] not in "ZX":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("ended", "status", "text"),
    [
        (Ended(3), 3, "ended with status 3"),
        (Ended(-9), 137, "was killed by SIGKILL"),
        (Ended(-9, "was lost with its node"), 137, "was lost with its node"),
    ],
)
def test_an_end_is_said_in_words_and_as_a_shell_does(ended: Ended, status: int, text: str) -> None:
    assert (ended.status, str(ended)) == (status, text)
