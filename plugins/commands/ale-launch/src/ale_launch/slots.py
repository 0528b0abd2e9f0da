"""CPU cores and GPUs of this machine, given out to processes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from attrs import frozen

from ale.errors import InputError, Problem
from ale.protocols import Launch, Process

_DRIVER = Path("/proc/driver/nvidia/gpus")


@frozen(kw_only=True)
class Slot:
    """What one process may use."""

    process: Process
    name: str
    cores: tuple[int, ...]
    """None: any."""
    gpus: tuple[str, ...]

    def environ(self, launch: Launch) -> Mapping[str, str]:
        """The variables that the process gets besides those of the launcher."""
        threads = {"OMP_NUM_THREADS": str(self.process.cpus)} if self.process.cpus else {}
        return {
            **threads,
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus),
            "ALE_RUN_DIRECTORY": str(launch.directory),
            "ALE_PROCESS": self.name,
            **self.process.environ,
        }


def gpus_of_this_machine(environ: Mapping[str, str], driver: Path = _DRIVER) -> tuple[str, ...]:
    """Ids of the visible GPUs: those that the variable names, or all of the NVIDIA driver."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        ids = (each.strip() for each in visible.split(","))
        # CUDA sees those before the first that is none: -1, or nothing.
        return tuple(takewhile(lambda each: each and not each.startswith("-"), ids))
    return tuple(map(str, range(len(list(driver.glob("*"))))))


def assign(launch: Launch, ranks: int, gpus: Sequence[str]) -> Sequence[Slot]:
    """A slot for each process, the run first.

    Args:
        ranks: trainer processes of the run on this machine.
        gpus: ids of those to give out.

    Raises:
        InputError: they want more than there is.
    """
    cores = sorted(os.sched_getaffinity(0))
    wanted = list(_wanted(launch, ranks))
    problems = [
        Problem(
            message=f"the processes want {n} {what}, this machine has {len(there)} to give out: "
            + ", ".join(f"{name} {each}" for name, each in of if each),
            path="launch",
        )
        for what, there, of in (
            ("CPU cores", cores, [(name, cpus) for _, name, cpus, _ in wanted]),
            ("GPUs", gpus, [(name, n_gpus) for _, name, _, n_gpus in wanted]),
        )
        if (n := sum(each for _, each in of)) > len(there)
    ]
    if problems:
        raise InputError(problems)
    free, free_gpus = iter(cores), iter(gpus)
    return [
        Slot(
            process=process,
            name=name,
            cores=tuple(next(free) for _ in range(cpus)),
            gpus=tuple(next(free_gpus) for _ in range(n_gpus)),
        )
        for process, name, cpus, n_gpus in wanted
    ]


def _wanted(launch: Launch, ranks: int) -> Iterator[tuple[Process, str, int, int]]:
    run = launch.run
    yield run, run.name, run.cpus * ranks, run.gpus * ranks
    for process in launch.others:
        for name in process.names:
            yield process, name, process.cpus, process.gpus
