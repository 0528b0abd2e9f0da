"""The launcher ``local``: the contract, and CPU cores and GPUs of each process's own."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from ale.errors import InputError
from ale.protocols import Launch, Launcher, Process
from ale.testing.launcher import LauncherContract, script, started, waited
from ale.testing.waiting import wait_for
from ale_launch.launching import to_the_end
from ale_launch.local import LocalLauncher
from ale_launch.options import LocalOptions
from ale_launch.slots import Slot, assign, gpus_of_this_machine
from ale_processes.supervised import Supervised

CORES = sorted(os.sched_getaffinity(0))


class TestLocal(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Launcher:
        return LocalLauncher(LocalOptions(grace_s=1))


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Launch]:
    (tmp_path / "ids").mkdir()

    def made(text: str, *others: Process, **options: int) -> Launch:
        run = evolve(script(tmp_path, "run", "run", text), **options)
        return Launch(name="r", directory=tmp_path / "r", run=run, others=others)

    return made


def gpu_server(count: int, gpus: int) -> Process:
    return Process(name="sample", role="server", command=("true",), count=count, gpus=gpus)


def test_each_process_gets_gpus_of_its_own(launch: Callable[..., Launch]) -> None:
    slots = assign(launch("", gpu_server(2, 2), gpus=1), ranks=2, gpus=list("abcdefgh"))
    assert {slot.name: "".join(slot.gpus) for slot in slots} == {
        "run": "ab",
        "sample-0": "cd",
        "sample-1": "ef",
    }
    environ = slots[1].environ(launch(""))
    assert environ["CUDA_VISIBLE_DEVICES"] == "c,d"


def test_each_process_gets_cores_of_its_own(
    launch: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2, 3, 5, 7})
    server = Process(name="s", role="server", command=("true",), count=2, cpus=1)
    slots = assign(launch("", server, cpus=1), ranks=2, gpus=())
    assert {slot.name: slot.cores for slot in slots} == {"run": (0, 2), "s-0": (3,), "s-1": (5,)}
    assert slots[1].environ(launch(""))["OMP_NUM_THREADS"] == "1"


def test_a_process_that_asks_for_no_gpu_sees_none(launch: Callable[..., Launch]) -> None:
    (slot,) = assign(launch(""), ranks=1, gpus=["0"])
    assert slot.environ(launch(""))["CUDA_VISIBLE_DEVICES"] == ""


def test_more_than_the_machine_has_is_refused_with_who_wants_it(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    wanted = launch("", gpu_server(2, 1), cpus=len(CORES) + 1)
    with pytest.raises(InputError) as caught:
        LocalLauncher(LocalOptions(gpus_here=("7",))).plan(wanted)
    n = len(CORES)
    assert f"want {n + 1} CPU cores, this machine has {n} to give out: run {n + 1}" in str(
        caught.value
    )
    assert "want 2 GPUs, this machine has 1 to give out: sample-0 1, sample-1 1" in str(
        caught.value
    )
    assert not (tmp_path / "r").exists()


def test_one_machine_is_not_several(launch: Callable[..., Launch]) -> None:
    with pytest.raises(InputError, match="one machine, not 2"):
        LocalLauncher(LocalOptions()).plan(evolve(launch(""), nodes=2))


def test_gpus_are_those_of_the_variable_or_of_the_driver(tmp_path: Path) -> None:
    for name in ("0000:01", "0000:02"):
        (tmp_path / name).mkdir()
    assert gpus_of_this_machine({}, tmp_path) == ("0", "1")
    assert gpus_of_this_machine({"CUDA_VISIBLE_DEVICES": "3, 5"}, tmp_path) == ("3", "5")
    for none in ("", "-1"):
        assert gpus_of_this_machine({"CUDA_VISIBLE_DEVICES": none}, tmp_path) == ()


async def test_a_process_runs_on_the_cores_that_it_asked_for(
    launch: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    show = "python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))'; echo $OMP_NUM_THREADS"
    wanted = launch(show, cpus=1)
    async with started(LocalLauncher(LocalOptions()), wanted) as launched:
        assert await waited(launched) == 0
    assert wanted.log("run").read_text().split() == [str(CORES[0]), "1"]


async def test_a_program_that_does_not_exist_is_named_in_the_log(
    launch: Callable[..., Launch],
) -> None:
    absent = Process(name="none", role="server", command=("no-such-program",))
    wanted = launch("sleep 60", absent)
    async with started(LocalLauncher(LocalOptions()), wanted) as launched:
        assert await waited(launched) == 1
    assert "no-such-program can't be started: No such file" in wanted.log("none").read_text()


async def test_a_signal_in_the_pause_before_a_restart_ends_the_run(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    paused = asyncio.Event()
    wanted = evolve(launch("echo start >> starts; kill -KILL $$"), restarts=1)
    local = LocalLauncher(LocalOptions())
    async with started(local, wanted, lambda _: paused.set()) as launched:
        waiting = asyncio.create_task(waited(launched))
        await asyncio.wait_for(paused.wait(), 60)
        await launched.send_signal(signal.SIGTERM)
        assert await waiting == 128 + signal.SIGKILL
    assert (tmp_path / "starts").read_text() == "start\n"


async def test_a_signal_before_the_run_has_its_process_reaches_it(
    launch: Callable[..., Launch],
) -> None:
    async with started(LocalLauncher(LocalOptions()), launch("sleep 60")) as launched:
        await launched.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(launched.wait(), 60) == 128 + signal.SIGTERM


def test_a_signal_while_the_launch_starts_is_passed_on(launch: Callable[..., Launch]) -> None:
    class Signalled(LocalLauncher):
        async def start(self, launch: Launch, say: Callable[[str], None]) -> Supervised[Slot]:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            return await super().start(launch, say)

    status = to_the_end(Signalled(LocalOptions(grace_s=1)), launch("sleep 60"), print)
    assert status == 128 + signal.SIGTERM


_LAUNCHER = """
import asyncio, sys
from pathlib import Path
from ale.protocols import Launch, Process
from ale_launch.local import LocalLauncher
from ale_launch.options import LocalOptions

async def main():
    run = Process(name="run", role="run", command=("bash", "-c", sys.argv[1]))
    launch = Launch(name="r", directory=Path(sys.argv[2]), run=run)
    await (await LocalLauncher(LocalOptions()).start(launch, print)).wait()

asyncio.run(main())
"""


def test_a_killed_launcher_leaves_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"echo $$ > {shlex.quote(str(pid))}; while :; do sleep 0.05; done"
    command = [sys.executable, "-c", _LAUNCHER, text, str(tmp_path / "r")]
    with subprocess.Popen(command) as launcher:
        child = Path("/proc", wait_for(lambda: pid.exists() and pid.read_text().strip()))
        launcher.send_signal(signal.SIGKILL)
    wait_for(lambda: not child.exists())
