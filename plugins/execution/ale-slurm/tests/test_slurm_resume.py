"""A lost node, a time limit: the job is requeued and the run resumed, each episode once."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.protocols import Launch, Process
from ale.testing.executor import episodes_of, write_run
from ale_slurm.launcher import SlurmLauncher, slurm
from ale_slurm.options import SlurmOptions
from ale_slurm.script import script_of

N = 6


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """A real `ale run` of six short episodes, with a worker beside it."""
    config = write_run(tmp_path, ["sleep 0.4; touch done"] * N, run={"concurrency": 1})
    directory = tmp_path / "runs" / "one"
    command = (sys.executable, "-P", "-m", "ale", "run", str(config))
    run = Process(name="run", role="run", command=(*command, "--directory", str(directory)))
    text = "trap exit TERM; while :; do sleep 0.1; done"
    work = Process(name="work", role="worker", command=("bash", "-c", text))
    return Launch(name="one", directory=directory, run=run, others=[work], restarts=2)


async def release(job: str) -> None:
    """Slurm starts a requeued job no earlier than two minutes later; an administrator can."""
    for _ in range(200):
        await asyncio.sleep(0.2)
        shown = await slurm("scontrol", "show", "job", "-o", job, refused=True)
        lines = [dict(w.partition("=")[::2] for w in line.split()) for line in shown.splitlines()]
        if all(line["JobState"] == "PENDING" and line["Restarts"] != "0" for line in lines):
            for line in lines:
                await slurm(
                    "scontrol", "update", f"jobid={line['JobId']}", "StartTime=now", refused=True
                )
            return
    raise AssertionError(f"the job was not requeued:\n{shown}")


async def lose(launch: Launch, lose_it: Callable[[Any], object]) -> list[str]:
    """Start it, do something to its job after some episodes; what was said until the end."""
    said: list[str] = []
    job: Any = await SlurmLauncher(SlurmOptions(grace_s=1), 0.5).start(launch, said.append)
    try:
        waiting = asyncio.create_task(job.wait())
        while len(episodes_of(launch.directory)) < 2:
            await asyncio.sleep(0.1)
            assert not waiting.done(), said
        lose_it(job)
        await release(job.id)
        assert await asyncio.wait_for(waiting, 60) == 0
    finally:
        await job.end()
    return said


def node_of(job: str) -> str:
    shown = ["squeue", "-h", "-j", job, "-o", "%i %B"]
    lines = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line.split()[1] for line in lines if line.split()[0] in (job, f"{job}+0"))


def whole(launch: Launch) -> None:
    assert sorted(episodes_of(launch.directory)) == sorted(f"0-t{i}-0" for i in range(N))
    manifest = json.loads((launch.directory / "manifest.json").read_text())
    assert manifest["outcome"]["outcome"] == "completed"


async def test_a_lost_node_requeues_the_job_and_the_run_is_resumed(
    cluster: Any, launch: Launch
) -> None:
    lost: list[str] = []

    def lose_it(job: Any) -> None:
        lost.append(node_of(job.id))
        cluster.kill_node(lost[0])

    said = await lose(launch, lose_it)
    cluster.start_node(lost[0])
    whole(launch)
    assert "holds a run: it is resumed" in launch.log("run").read_text()
    states = [line.split()[2] for line in said if line.startswith("job ") and ": " in line]
    assert "pending" in states[states.index("running") :]


@pytest.mark.long
async def test_before_the_time_limit_the_run_is_ended_and_the_job_requeued(
    cluster: Any, launch: Launch
) -> None:
    def warn(job: Any) -> None:
        subprocess.run(["scancel", "--signal=USR1", "--batch", job.id], check=True)

    await lose(launch, warn)
    whole(launch)
    assert "requeued before the time limit" in launch.log("job").read_text()
    assert "Terminated" in launch.log("run").read_text()


def test_the_script_has_a_component_for_each_process(launch: Launch) -> None:
    options = SlurmOptions(partition="gpu", time="1-00:00:00", sbatch=("--constraint=a100",))
    server = Process(
        name="sample", role="server", command=("serve", "a b"), count=2, cpus=4, gpus=1
    )
    rank = ("python", "-m", "ranks")
    run = Process(
        name="run", role="run", command=("ale",), cpus=8, gpus=1, ranks=8, rank_command=rank
    )
    wanted = Launch(name="r", directory=launch.directory, run=run, others=[server], nodes=2)
    text = script_of(wanted, options)
    first, *more = text.split("#SBATCH hetjob\n")
    for option in ("--nodes=2", "--ntasks=2", "--cpus-per-task=32", "--gpus-per-node=4"):
        assert f"#SBATCH {option}\n" in first
    assert "#SBATCH --signal=B:USR1@120\n" in first
    assert len(more) == 2
    for component in (first, *more):
        assert "#SBATCH --partition=gpu\n" in component
        assert "#SBATCH --time=1-00:00:00\n" in component
        assert "#SBATCH --constraint=a100\n" in component
    assert "#SBATCH --cpus-per-task=4\n#SBATCH --gpus-per-node=1\n" in more[0]
    assert "beside sample-1 srun --het-group=2 " in text
    assert "serve 'a b'" in text
    assert "srun --het-group=0 --nodes=2 --ntasks-per-node=1" in text
    assert "--node-rank $SLURM_NODEID --master-addr $head --master-port $port" in text


@pytest.mark.parametrize("job", [1, 34_155, 67_043_328])
def test_ranks_meet_at_a_port_that_linux_gives_to_no_connection(launch: Launch, job: int) -> None:
    run = Process(name="run", role="run", command=("ale",), ranks=2, rank_command=("x",))
    wanted = Launch(name="r", directory=launch.directory, run=run, nodes=2)
    (port,) = re.findall(r" port=(\$\(\(.*?\)\))", script_of(wanted, SlurmOptions()))
    shown = subprocess.run(
        ["bash", "-c", f"echo {port}"],
        env={"SLURM_JOB_ID": str(job)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 20_000 <= int(shown.stdout) < 32_768


def test_ranks_that_can_not_be_spread_evenly_are_refused(launch: Launch) -> None:
    run = Process(name="run", role="run", command=("ale",), ranks=3, rank_command=("x",))
    uneven = Launch(name="r", directory=launch.directory, run=run, nodes=2)
    with pytest.raises(InputError, match="3 trainer processes can't be spread evenly over 2 nodes"):
        script_of(uneven, SlurmOptions())


def test_the_script_is_what_bash_understands(launch: Launch) -> None:
    text = script_of(launch, SlurmOptions(setup=("module load cuda",)))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert text.index("module load cuda") < text.index("beside()")
    assert str(os.getpid()) not in text
