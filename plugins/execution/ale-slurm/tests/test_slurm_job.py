"""The script of a job, run by bash: what a real Slurm would need minutes for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ale.protocols import LOST, Launch, Process
from ale_processes.torchrun import record_of
from ale_slurm.options import SlurmOptions
from ale_slurm.script import script_of

LIMIT_S = 60.0
RUN = Process(name="run", role="run", command=("true",))
# Slurm ends a script that it requeues; this one writes down what it was asked.
SCONTROL = """#!/bin/bash
echo "$@" >>"{asked}"
[ "$1" = requeue ] && kill -KILL $PPID
"""


def begun(folder: Path, body: str, requeued: int = 0) -> "subprocess.Popen[str]":
    """A job whose run is `body`, a program of Python; it may be started again twice."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "scontrol").write_text(SCONTROL.format(asked=folder / "asked"))
    (programs / "scontrol").chmod(0o755)
    process = Process(name="run", role="run", command=(sys.executable, "-c", body))
    launch = Launch(name="r", directory=folder, run=process, others=[], nodes=1, restarts=2)
    (folder / "logs").mkdir()
    return subprocess.Popen(
        ["bash", "-c", script_of(launch, SlurmOptions())],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_RESTART_COUNT": str(requeued),
        },
    )


def counting(folder: Path, then: str) -> str:
    """A program that notes that it was started; `n` is how often."""
    return (
        "import pathlib, signal, sys, time\n"
        f"file = pathlib.Path({str(folder / 'starts')!r})\n"
        "n = len(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text('x' * n)\n"
        f"{then}\n"
    )


@pytest.mark.parametrize(
    ("ends", "status", "starts"),
    [
        ("sys.exit(75 if n == 1 else 3)", 3, 2),
        ("sys.exit(75)", LOST, 3),
        ("sys.exit(2)", 2, 1),
        ("import os; os.kill(os.getpid(), 9 if n < 3 else 0)", 0, 3),
    ],
)
def test_a_run_that_lost_a_process_or_was_killed_is_started_again_up_to_a_bound(
    tmp_path: Path, ends: str, status: int, starts: int
) -> None:
    job = begun(tmp_path, counting(tmp_path, ends))
    printed, _ = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, len((tmp_path / "starts").read_text())) == (status, starts), printed


@pytest.mark.parametrize(("requeued", "again"), [(0, True), (1, True), (2, False)])
def test_before_the_time_limit_the_run_is_asked_to_end_and_the_job_requeued(
    tmp_path: Path, requeued: int, again: bool
) -> None:
    end = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nfile.with_name('ready').touch()"
    job = begun(tmp_path, counting(tmp_path, f"{end}\ntime.sleep(60)"), requeued)
    deadline = time.monotonic() + LIMIT_S
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    job.communicate(timeout=LIMIT_S)
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == ("requeue 7\n" if again else "")
    assert job.returncode == (-signal.SIGKILL if again else 143)
    assert (tmp_path / "starts").read_text() == "x"


def test_a_job_that_was_requeued_too_often_does_not_start(tmp_path: Path) -> None:
    job = begun(tmp_path, counting(tmp_path, "sys.exit(0)"), requeued=3)
    printed, _ = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, printed) == (LOST, "requeued more than 2 times\n")
    assert not (tmp_path / "starts").exists()


def test_a_signal_goes_to_rank_0_if_it_is_on_this_node(tmp_path: Path) -> None:
    """Torchrun, which the script has started, would kill it 30 s later."""
    rank = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); "
    rank += "print('ready', flush=True); signal.pause()"
    record = record_of(Launch(name="r", directory=tmp_path, run=RUN, others=[]))
    body = (
        "import json, pathlib, subprocess, sys\n"
        f"rank = subprocess.Popen([sys.executable, '-c', {rank!r}], stdout=subprocess.PIPE)\n"
        "rank.stdout.readline()\n"
        f"pathlib.Path({str(record)!r}).write_text(json.dumps({{'pid': rank.pid}}))\n"
        "sys.exit(rank.wait())\n"
    )
    job = begun(tmp_path, body)
    deadline = time.monotonic() + LIMIT_S
    while not record.exists() or not record.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=LIMIT_S)
    assert job.returncode == 9
