"""The kit for launchers passes a right one and fails wrong ones, each for its own reason."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ale.protocols import LOST, Launch, Launcher, Process
from ale.testing import waiting
from ale.testing.launcher import LauncherContract


class Job:
    """The processes of a launch, each in a group of its own."""

    def __init__(self, launch: Launch, faults: set[str]) -> None:
        self.launch, self.faults = launch, faults
        self.running: dict[str, asyncio.subprocess.Process] = {}
        self.signalled = self.ending = self.lost = False
        named = [(process, name) for process in launch.others for name in process.names]
        self.tasks = [asyncio.create_task(self.keep(*pair)) for pair in named]
        self.tasks.append(asyncio.create_task(self.keep(launch.run, "run")))

    async def once(self, process: Process, name: str) -> int:
        log = self.launch.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self.running[name] = made = await asyncio.create_subprocess_exec(
                *process.command,
                stdout=asyncio.subprocess.DEVNULL if "no log" in self.faults else out,
                stderr=out,
                start_new_session=True,
                env={
                    **os.environ,
                    **process.environ,
                    "ALE_PROCESS": process.name if "one name" in self.faults else name,
                    "ALE_RUN_DIRECTORY": str(self.launch.directory),
                },
            )
        if self.ending:  # while it was being started
            self.kill(made.pid)
        code = await made.wait()
        self.kill(made.pid)
        return code

    async def keep(self, process: Process, name: str) -> int:
        for _ in range(1 if "no restart" in self.faults else self.launch.restarts + 1):
            code = await self.once(process, name)
            lost = code < 0 and not self.signalled if process.role == "run" else code != 0
            if self.ending or not lost:
                return code
        if "forgets the loss" not in self.faults:
            self.lost = True
            await self.send_signal(signal.SIGTERM)
        return LOST

    async def wait(self) -> int:
        code = await self.tasks[-1]
        await self.end()
        if "no status" in self.faults:
            return 0
        return LOST if self.lost else code

    async def send_signal(self, number: signal.Signals) -> None:
        self.signalled = True
        names = [*self.running] if "signals all" in self.faults else ["run"]
        for name in names:
            with suppress(ProcessLookupError):
                os.kill(self.running[name].pid, number)

    async def end(self) -> None:
        self.ending = True
        for made in self.running.values():
            with suppress(ProcessLookupError):
                made.terminate()
        await asyncio.sleep(0.3)
        if "only asks" in self.faults:
            return
        for made in self.running.values():
            self.kill(made.pid)
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def kill(self, leader: int) -> None:
        with suppress(ProcessLookupError):
            end = os.kill if "leaves children" in self.faults else os.killpg
            end(leader, signal.SIGKILL)


class Small:
    """A launcher with faults."""

    def __init__(self, *faults: str) -> None:
        self.faults = set(faults)

    def plan(self, launch: Launch) -> str:
        if "plans by starting" in self.faults:
            launch.directory.mkdir()
        return "\n".join(" ".join(each.command) for each in (launch.run, *launch.others))

    async def start(self, launch: Launch, say: Callable[[str], None]) -> Job:
        return Job(launch, self.faults)


class TestARightLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Launcher:
        return Small()


TESTS: dict[str, str] = {
    "plans by starting": "a_plan_names_every_process_and_starts_nothing",
    "no status": "the_status_of_the_run_is_that_of_the_launch",
    "no log": "each_process_has_its_log_its_name_and_its_variables",
    "one name": "each_process_has_its_log_its_name_and_its_variables",
    "leaves children": "the_others_end_with_the_run",
    "signals all": "a_signal_reaches_the_run_and_the_others_stay_until_it_has_ended",
    "only asks": "ending_it_ends_what_ignores_every_signal",
    "no restart": "a_killed_run_is_started_again_by_the_same_command",
    "forgets the loss": "a_worker_lost_too_often_ends_the_run",
}


async def called(test: Any, kit: Any, launcher: Small, given: dict[str, Any]) -> None:
    made = test(kit, launcher, **given)
    if made is not None:
        await made


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("fault", TESTS)
async def test_a_fault_fails_its_test(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LIMIT_S", 1.5)
    (tmp_path / "ids").mkdir()
    kit: Any = LauncherContract()
    test: Any = getattr(LauncherContract, f"test_{TESTS[fault]}")
    launch = LauncherContract.launch.__wrapped__(kit, tmp_path)  # type: ignore[attr-defined]
    available = {"launch": launch, "ids": tmp_path / "ids", "tmp_path": tmp_path}
    wanted = test.__code__.co_varnames[: test.__code__.co_argcount]
    given = {name: value for name, value in available.items() if name in wanted}
    try:
        with pytest.raises((AssertionError, TimeoutError)):
            await called(test, kit, Small(fault), given)
    finally:
        for path in (tmp_path / "ids").iterdir():
            with suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)
        await asyncio.sleep(0.2)  # their exit is noticed while the loop still runs
