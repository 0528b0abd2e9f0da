"""The launcher ``slurm`` on a real Slurm of three nodes."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ale.errors import LaunchError
from ale.protocols import LOST, Launch, Launcher
from ale.testing.launcher import LauncherContract, alive, says, started, waited
from ale.testing.waiting import until
from ale_slurm.launcher import Job, SlurmLauncher
from ale_slurm.options import SlurmOptions


@contextmanager
def no_controller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block the programs of Slurm ask where nobody listens."""
    conf = Path(os.environ["SLURM_CONF"])
    elsewhere = folder / "slurm.conf"
    elsewhere.write_text(conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1#"))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    yield
    monkeypatch.setenv("SLURM_CONF", str(conf))


def asked_again(said: list[str]) -> bool:
    return any("asking again" in each for each in said)


@pytest.mark.usefixtures("cluster")
class TestSlurm(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Launcher:
        return SlurmLauncher(SlurmOptions(grace_s=1), poll_s=0.5)

    async def test_a_controller_that_does_not_answer_for_a_while_ends_nothing(
        self,
        launcher: Launcher,
        launch: Callable[..., Launch],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        wanted = launch("echo ready; until [ -e enough ]; do sleep 0.1; done; exit 3")
        said: list[str] = []
        async with started(launcher, wanted, said.append) as launched:
            waiting = asyncio.create_task(waited(launched))
            await until(lambda: says(wanted, "run", "ready"))
            with no_controller(tmp_path, monkeypatch):
                await until(lambda: waiting.done() or asked_again(said))
            (tmp_path / "enough").touch()
            assert await waiting == 3

    async def test_a_signal_and_the_end_reach_a_job_whose_controller_was_away(
        self,
        launcher: Launcher,
        launch: Callable[..., Launch],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        ids: Path,
    ) -> None:
        wanted = launch("trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done")
        said: list[str] = []
        async with started(launcher, wanted, said.append) as launched:
            await until(lambda: says(wanted, "run", "ready"))
            for task, told in (
                (launched.send_signal(signal.SIGTERM), lambda: says(wanted, "run", "told")),
                (launched.end(), lambda: not alive(ids)),
            ):
                said.clear()
                with no_controller(tmp_path, monkeypatch):
                    calling = asyncio.create_task(task)
                    await until(lambda calling=calling: calling.done() or asked_again(said))
                await asyncio.wait_for(calling, 60)
                await until(told)

    async def test_a_run_that_a_signal_has_ended_was_interrupted_and_has_not_failed(
        self, launcher: Launcher, launch: Callable[..., Launch]
    ) -> None:
        wanted = launch("trap 'exit 130' INT; echo ready; while :; do sleep 0.1; done")
        said: list[str] = []
        async with started(launcher, wanted, said.append) as launched:
            await until(lambda: says(wanted, "run", "ready"))
            await launched.send_signal(signal.SIGINT)
            assert await waited(launched) == 130
        assert "interrupted by SIGINT, with status 130" in said[-1]
        assert not any("failed" in each for each in said)

    async def test_a_job_that_slurm_does_not_know_is_an_error(self) -> None:
        job = Job("999999", print, detached=False)
        with pytest.raises(LaunchError, match="Invalid job id"):
            await asyncio.wait_for(job.wait(), 60)

    async def test_a_script_that_a_signal_killed_is_a_lost_run(
        self, launcher: Launcher, launch: Callable[..., Launch]
    ) -> None:
        """Slurm writes `0:9` then: the status is 0, and the signal 9."""
        async with started(launcher, launch("kill -KILL $PPID; sleep 1")) as launched:
            assert await waited(launched) == LOST

    async def test_a_signal_in_the_pause_before_a_restart_ends_the_run(
        self, launcher: Launcher, launch: Callable[..., Launch], tmp_path: Path
    ) -> None:
        wanted = launch("echo start >> starts; kill -KILL $$", restarts=1)
        async with started(launcher, wanted) as launched:
            waiting = asyncio.create_task(waited(launched))
            await until(lambda: says(wanted, "job", "started again"))
            await launched.send_signal(signal.SIGTERM)
            assert await waiting == 128 + signal.SIGKILL
        assert (tmp_path / "starts").read_text() == "start\n"
