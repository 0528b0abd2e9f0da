"""Contract kit for launchers: logs, exit status, lost processes, signals, and nothing left behind.

```python
class TestMine(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Launcher:
        return Mine(MineOptions())
```
"""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ale.protocols import LOST, Launch, Launched, Launcher, Process, Role
from ale.testing import waiting
from ale.testing._marks import async_tests
from ale.testing.waiting import until

# Ends at a SIGINT with status 130, like a run that has finished its episodes.
DRAINS = "trap 'echo drained; exit 130' INT; trap 'echo ended; exit 143' TERM; echo ready"
WAIT = "; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM INT; echo ready" + WAIT


@async_tests
class LauncherContract:
    """The contract of launchers. Give it the fixture `launcher`: the product, for this machine."""

    @pytest.fixture
    def launcher(self) -> Launcher:
        raise NotImplementedError("override the fixture `launcher`")

    @pytest.fixture
    def launch(self, tmp_path: Path) -> Callable[..., Launch]:
        """Makes a launch of bash scripts, each of which first writes its process id to a file."""

        def made(run: str, worker: str | None = None, count: int = 1, restarts: int = 0) -> Launch:
            others = [] if worker is None else [script(tmp_path, "work", "worker", worker, count)]
            return Launch(
                name=f"kit-{os.getpid()}",
                directory=tmp_path / "run-1",
                run=script(tmp_path, "run", "run", run),
                others=others,
                restarts=restarts,
            )

        return made

    @pytest.fixture(autouse=True)
    def heeds_interrupts(self) -> Iterator[None]:
        """Restore SIGINT: shells make background processes ignore it, which bash can't undo."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.fixture(autouse=True)
    def ids(self, tmp_path: Path) -> Path:
        """The folder in which each process has a file named after its id."""
        (tmp_path / "ids").mkdir()
        return tmp_path / "ids"

    def test_a_plan_names_every_process_and_starts_nothing(
        self, launcher: Launcher, launch: Callable[..., Launch], tmp_path: Path
    ) -> None:
        text = launcher.plan(launch("echo of-the-run", "echo of-the-worker", count=2))
        assert "of-the-run" in text
        assert "of-the-worker" in text
        assert not (tmp_path / "run-1").exists()
        assert list((tmp_path / "ids").iterdir()) == []

    async def test_the_status_of_the_run_is_that_of_the_launch(
        self, launcher: Launcher, launch: Callable[..., Launch]
    ) -> None:
        async with started(launcher, launch("exit 3")) as launched:
            assert await waited(launched) == 3

    async def test_each_process_has_its_log_its_name_and_its_variables(
        self, launcher: Launcher, launch: Callable[..., Launch]
    ) -> None:
        show = 'echo "$ALE_PROCESS of ${ALE_RUN_DIRECTORY##*/} with $KIT"; echo error >&2'
        wait = "until [ -e work-0 -a -e work-1 ]; do sleep 0.05; done"
        wanted = launch(f"{show}; {wait}", f'{show}; touch "$ALE_PROCESS"{WAIT}', count=2)
        async with started(launcher, wanted) as launched:
            assert await waited(launched) == 0
        for name in ("run", "work-0", "work-1"):
            text = wanted.log(name).read_text()
            assert f"{name} of run-1 with it" in text
            assert "error" in text

    async def test_the_others_end_with_the_run(
        self, launcher: Launcher, launch: Callable[..., Launch], ids: Path
    ) -> None:
        wanted = launch("sleep 1", "sleep 600 & touch ids/$!; " + STUBBORN, count=2)
        async with started(launcher, wanted) as launched:
            assert await waited(launched) == 0
            await until(lambda: not alive(ids))

    async def test_a_signal_reaches_the_run_and_the_others_stay_until_it_has_ended(
        self, launcher: Launcher, launch: Callable[..., Launch], ids: Path
    ) -> None:
        drains = "trap 'sleep 0.5; exit 130' INT; echo ready" + WAIT
        wanted = launch(drains, DRAINS + WAIT)
        async with started(launcher, wanted) as launched:
            await until(lambda: says(wanted, "run", "ready") and says(wanted, "work", "ready"))
            await launched.send_signal(signal.SIGINT)
            assert await waited(launched) == 130
            await until(lambda: not alive(ids))
        assert says(wanted, "work", "ended")
        assert not says(wanted, "work", "drained")

    async def test_ending_it_ends_what_ignores_every_signal(
        self, launcher: Launcher, launch: Callable[..., Launch], ids: Path
    ) -> None:
        wanted = launch(STUBBORN, STUBBORN)
        async with started(launcher, wanted) as launched:
            await until(lambda: says(wanted, "run", "ready") and says(wanted, "work", "ready"))
            waiting = asyncio.create_task(waited(launched))
            await asyncio.sleep(0)
            await launched.end()
            await launched.end()
            assert await waiting != 0
            await until(lambda: not alive(ids))

    async def test_a_lost_worker_is_started_again(
        self, launcher: Launcher, launch: Callable[..., Launch], tmp_path: Path
    ) -> None:
        once = "[ -e two ] && exit 0; [ -e one ] && touch two || touch one; kill -KILL $$"
        wanted = launch("until [ -e two ]; do sleep 0.05; done; sleep 0.5", once, restarts=2)
        reports: list[str] = []
        async with started(launcher, wanted, reports.append) as launched:
            assert await waited(launched) == 0

    async def test_a_worker_lost_too_often_ends_the_run(
        self, launcher: Launcher, launch: Callable[..., Launch], ids: Path
    ) -> None:
        wanted = launch(DRAINS + WAIT, "sleep 1; exit 7")
        async with started(launcher, wanted) as launched:
            assert await waited(launched) == LOST
            await until(lambda: not alive(ids))
        assert says(wanted, "run", "ended")

    async def test_a_killed_run_is_started_again_by_the_same_command(
        self, launcher: Launcher, launch: Callable[..., Launch], ids: Path
    ) -> None:
        wanted = launch("[ -e again ] && exit 3; touch again; kill -KILL $$", DRAINS + WAIT, 1, 1)
        async with started(launcher, wanted) as launched:
            assert await waited(launched) == 3
            await until(lambda: not alive(ids))

    async def test_a_run_killed_too_often_is_lost(
        self, launcher: Launcher, launch: Callable[..., Launch], ids: Path
    ) -> None:
        wanted = launch("echo start >> starts; kill -KILL $$", restarts=1)
        async with started(launcher, wanted) as launched:
            assert await waited(launched) == LOST
        assert (ids.parent / "starts").read_text() == "start\n" * 2


def script(folder: Path, name: str, role: Role, text: str, count: int = 1) -> Process:
    """A bash script that runs in `folder` and writes its process id into ``ids/`` there."""
    inside = f"cd {shlex.quote(str(folder))}; touch ids/$$; {text}"
    command = ("bash", "-c", inside)
    return Process(name=name, role=role, command=command, environ={"KIT": "it"}, count=count)


@contextlib.asynccontextmanager
async def started(
    launcher: Launcher, launch: Launch, say: Callable[[str], None] = print
) -> AsyncIterator[Launched]:
    """A launch that is ended after the block."""
    launched = await launcher.start(launch, say)
    try:
        yield launched
    finally:
        await launched.end()


async def waited(launched: Launched) -> int:
    """The status of a launch that ends by itself, in time."""
    return await asyncio.wait_for(launched.wait(), waiting.LIMIT_S)


def says(launch: Launch, name: str, text: str) -> bool:
    """Does the log of a process have this text?"""
    log = launch.log(name)
    return log.exists() and text in log.read_text()


def alive(ids: Path) -> list[str]:
    """The processes of the launch that are still running."""
    return [path.name for path in ids.iterdir() if _runs(Path("/proc") / path.name / "stat")]


def _runs(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
