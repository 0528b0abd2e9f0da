"""How a run has ended is known although torchrun does not say it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ale.errors import InputError
from ale.protocols import Launch, Process
from ale_processes.torchrun import (
    check_ranks,
    process_of_rank_0,
    record_of,
    status_of_run,
    torchrun,
)

RANK = Path(sys.modules["ale_processes.torchrun"].__file__ or "").with_name("rank.py")


def launch_of(folder: Path, ranks: int = 2, nodes: int = 1) -> Launch:
    run = Process(name="run", role="run", command=("ale",), ranks=ranks, rank_command=("x", "y"))
    (folder / "logs").mkdir(exist_ok=True)
    return Launch(name="r", directory=folder, run=run, nodes=nodes)


def start(
    launch: Launch, text: str, rank: str = "0", restarts: int = 0
) -> "subprocess.Popen[bytes]":
    command = (sys.executable, "-I", str(RANK), str(record_of(launch)), "bash", "-c", text)
    number = {"RANK": rank, "TORCHELASTIC_RESTART_COUNT": str(restarts)}
    return subprocess.Popen(command, env={**os.environ, **number})


LOOP = "while :; do sleep 0.05; done"


def pid_of(launch: Launch) -> int:
    """The process of rank 0, once it has had time to set its traps."""
    while (found := process_of_rank_0(launch)) is None:
        time.sleep(0.02)
    time.sleep(0.3)
    return found


@pytest.mark.parametrize("status", [0, 2, 3, 130, 143])
def test_an_end_of_the_run_is_passed_on_by_a_file(tmp_path: Path, status: int) -> None:
    launch = launch_of(tmp_path)
    assert start(launch, f"exit {status}").wait(20) == 0
    assert status_of_run(launch, 0) == status


@pytest.mark.parametrize("text", ["exit 1", "kill -KILL $$"])
def test_a_failure_or_a_kill_stays_one(tmp_path: Path, text: str) -> None:
    launch = launch_of(tmp_path)
    assert start(launch, text).wait(20) == 1
    assert status_of_run(launch, 1) == 1


def test_a_signal_goes_to_the_process_of_rank_0(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    assert process_of_rank_0(launch) is None
    with start(launch, f"trap 'exit 143' TERM; {LOOP}") as rank:
        os.kill(pid_of(launch), signal.SIGTERM)
        assert rank.wait(20) == 0
    assert status_of_run(launch, 0) == 143


def test_a_rank_0_that_a_signal_ends_before_it_can_answer_is_not_started_again(
    tmp_path: Path,
) -> None:
    launch = launch_of(tmp_path)
    with start(launch, LOOP) as rank:
        os.kill(pid_of(launch), signal.SIGTERM)
        assert rank.wait(20) == 0
    for number in ("0", "1"):
        assert start(launch, "exit 1", rank=number, restarts=1).wait(20) == 0
    assert status_of_run(launch, 0) == 143


def test_what_follows_torchruns_own_signal_is_no_end_of_the_run(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    with start(launch, f"trap 'exit 143' TERM; {LOOP}") as rank:
        pid_of(launch)
        rank.terminate()
        assert rank.wait(20) == 1
    assert start(launch, "exit 0", restarts=1).wait(20) == 0
    assert status_of_run(launch, 0) == 0


def test_another_rank_becomes_its_command(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    assert start(launch, "exit 5", rank="1").wait(20) == 5
    assert not record_of(launch).exists()


def test_ranks_are_spread_evenly(tmp_path: Path) -> None:
    command = torchrun(launch_of(tmp_path, ranks=8, nodes=2), ("--nnodes", "2"), restarts=3)
    assert command[command.index("--nproc-per-node") + 1] == "4"
    assert command[-2:] == ("x", "y")
    with pytest.raises(InputError, match="3 trainer processes can't be spread evenly"):
        check_ranks(launch_of(tmp_path, ranks=3, nodes=2))


def test_the_file_of_another_machine_names_no_process(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    record_of(launch).write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert process_of_rank_0(launch) is None
