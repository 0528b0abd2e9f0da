"""The sbatch script of a launch."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ale.errors import InputError, LostProcessError
from ale.protocols import LOST, Launch, Process
from ale_processes.torchrun import check_ranks, record_of, torchrun
from ale_slurm.options import SlurmOptions

JOB_LOG = "job"
"""Name of the log of the script itself."""
_MOST_COMPONENTS = 128
# Bash lets what it starts in the background ignore SIGINT, which a run answers.
_INTERRUPTIBLE = (
    *(sys.executable, "-I", "-c"),
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execvp(sys.argv[1], sys.argv[1:])",
)
_FUNCTIONS = Path(__file__).with_name("job.sh")


def script_of(launch: Launch, options: SlurmOptions) -> str:
    """The script: one component for the run, and one for each process beside it.

    Raises:
        InputError: the launch does not fit into one job.
    """
    others = [(process, name) for process in launch.others for name in process.names]
    if len(others) >= _MOST_COMPONENTS:
        message = f"a job has at most {_MOST_COMPONENTS} components, this has {len(others) + 1}"
        raise InputError.of(message, path="launch.processes")
    if launch.nodes > 1:
        check_ranks(launch)
    lines = ["#!/bin/bash", *_sbatch(_head(launch, options))]
    for process, _ in others:
        lines.append("#SBATCH hetjob")
        lines += _sbatch(_component(process, options, nodes=1, tasks=1))
    lines += [
        "",
        *options.setup,
        *_settings(launch, options),
        "",
        _FUNCTIONS.read_text().rstrip(),
        "",
    ]
    lines += [_other(launch, *pair, group) for group, pair in enumerate(others, 1)]
    lines += [_run(launch, options, het=bool(others)), "finish"]
    return "\n".join(lines) + "\n"


def _sbatch(options: Sequence[str]) -> Iterator[str]:
    yield from (f"#SBATCH {option}" for option in options)


def _head(launch: Launch, options: SlurmOptions) -> Sequence[str]:
    return (
        f"--job-name={launch.name}",
        f"--output={launch.log(JOB_LOG)}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{options.warning_s}",
        *_component(launch.run, options, nodes=launch.nodes, tasks=launch.nodes),
    )


def _component(process: Process, options: SlurmOptions, *, nodes: int, tasks: int) -> Sequence[str]:
    here = process.ranks // nodes
    named = {"partition": options.partition, "time": options.time}
    gpus = process.gpus * here
    return (
        f"--nodes={nodes}",
        f"--ntasks={tasks}",
        f"--cpus-per-task={max(process.cpus, 1) * here}",
        *((f"--gpus-per-node={gpus}",) if gpus else ()),
        *(f"--{key}={value}" for key, value in named.items() if value is not None),
        *options.sbatch,
    )


def _settings(launch: Launch, options: SlurmOptions) -> Iterator[str]:
    yield f"cd {shlex.quote(str(Path.cwd()))}"
    yield f"export ALE_RUN_DIRECTORY={shlex.quote(str(launch.directory))}"
    yield f"logs={shlex.quote(str(launch.log(JOB_LOG).parent))}"
    yield f"grace_s={options.grace_s:g}"
    yield f"restarts={launch.restarts}"
    yield f"status_of_lost={LOST}"
    yield f"status_to_start_again={LostProcessError.exit_status}"
    yield f"ranks_by_torchrun={1 if launch.nodes > 1 else ''}"
    yield f"rank_0={shlex.quote(str(record_of(launch)))}"


def _environ(process: Process, name: str) -> str:
    threads = {"OMP_NUM_THREADS": str(process.cpus)} if process.cpus else {}
    variables = {"ALE_PROCESS": name, **threads, **process.environ}
    return "env " + " ".join(shlex.quote(f"{key}={value}") for key, value in variables.items())


def _other(launch: Launch, process: Process, name: str, group: int) -> str:
    log = f"--open-mode=append --output={shlex.quote(str(launch.log(name)))}"
    step = f"srun --het-group={group} --ntasks=1 {log}"
    return f"beside {name} {step} {_environ(process, name)} {shlex.join(process.command)}"


def _run(launch: Launch, options: SlurmOptions, *, het: bool) -> str:
    run = launch.run
    if launch.nodes == 1:
        command = shlex.join((*_INTERRUPTIBLE, *run.command))
        return f"run {_environ(run, run.name)} {command}"
    # Below 32768, where Linux begins to take ports for connections.
    port = "$((20000 + SLURM_JOB_ID % 12000))"
    where = ("--nnodes", str(launch.nodes), "--node-rank", "NODE", "--master-addr", "HEAD")
    ranks = shlex.join(torchrun(launch, (*where, "--master-port", "PORT"), restarts=0))
    # Evaluated by each node's shell: its number; by the script: where the ranks meet.
    ranks = ranks.replace("NODE", "$SLURM_NODEID", 1).replace("HEAD", "$head", 1)
    group = " --het-group=0" if het else ""
    step = f"srun{group} --nodes={launch.nodes} --ntasks-per-node=1 --kill-on-bad-exit=1"
    return "\n".join(
        (
            f"export head=$(address_of_this_node) port={port}",
            f"run {_environ(run, run.name)} {step} bash -c "
            + shlex.quote(ranks.replace("PORT", "$port", 1)),
        )
    )
