"""The script that is submitted, line by line; no Slurm is asked."""

from pathlib import Path

import pytest
from attrs import evolve

from ale.errors import InputError
from ale.protocols import Launch, Process
from ale_slurm.launcher import Job, SlurmLauncher
from ale_slurm.options import SlurmOptions

OPTIONS = SlurmOptions(
    partition="long",
    time="1-02:00:00",
    warning_s=99,
    grace_s=7,
    sbatch=("--account=me", "--exclusive"),
    setup=("module load cuda",),
)
EVERYWHERE = ["--partition=long", "--time=1-02:00:00", "--account=me", "--exclusive"]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Eight ranks on two nodes, and two servers."""
    run = Process(
        name="run",
        role="run",
        command=("ale",),
        cpus=2,
        gpus=1,
        ranks=8,
        rank_command=("ranks",),
        environ={"K": "v"},
    )
    server = Process(name="s", role="server", command=("serve",), count=2, cpus=4, gpus=2)
    return Launch(name="r", directory=tmp_path, run=run, others=[server], nodes=2, restarts=3)


def test_each_component_asks_for_what_its_process_uses(launch: Launch, tmp_path: Path) -> None:
    script = SlurmLauncher(OPTIONS).plan(launch)
    asked = [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]
    both = ["hetjob", "--nodes=1", "--ntasks=1", "--cpus-per-task=4", "--gpus-per-node=2"]
    assert asked == [
        "--job-name=r",
        f"--output={tmp_path}/logs/job.log",
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR1@99",
        *("--nodes=2", "--ntasks=2", "--cpus-per-task=8", "--gpus-per-node=4"),
        *EVERYWHERE,
        *(both + EVERYWHERE),
        *(both + EVERYWHERE),
    ]


def test_the_script_prepares_the_node_and_gives_each_process_its_variables(launch: Launch) -> None:
    lines = SlurmLauncher(OPTIONS).plan(launch).splitlines()
    assert lines.index("module load cuda") < lines.index(f"cd {Path.cwd()}")
    assert {"grace_s=7", "restarts=3", "ranks_by_torchrun=1"} <= {*lines}
    beside = [line for line in lines if line.startswith("beside s-")]
    assert [line.partition(" env ")[2] for line in beside] == [
        "ALE_PROCESS=s-0 OMP_NUM_THREADS=4 serve",
        "ALE_PROCESS=s-1 OMP_NUM_THREADS=4 serve",
    ]
    assert ["--het-group=1" in beside[0], "--het-group=2" in beside[1]] == [True, True]
    (run,) = (line for line in lines if line.startswith("run env "))
    assert run.startswith("run env ALE_PROCESS=run OMP_NUM_THREADS=2 K=v srun --het-group=0 ")
    assert "--nproc-per-node 4" in run


def test_more_processes_than_a_job_has_components_are_refused(launch: Launch) -> None:
    (server,) = launch.others
    SlurmLauncher(OPTIONS).plan(evolve(launch, others=[evolve(server, count=127)]))
    with pytest.raises(InputError, match="at most 128 components, this has 129"):
        SlurmLauncher(OPTIONS).plan(evolve(launch, others=[evolve(server, count=128)]))


async def test_a_detached_job_is_neither_waited_for_nor_ended(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    async def slurm(program: str, *arguments: str, **_: object) -> str:
        called.append(program)
        return "12;a-cluster\n"

    monkeypatch.setattr("ale_slurm.launcher.slurm", slurm)
    job = await SlurmLauncher(evolve(OPTIONS, detach=True)).start(launch, print)
    assert isinstance(job, Job)
    assert job.id == "12"
    assert await job.wait() == 0
    await job.end()
    assert called == ["sbatch"]
