"""The launcher ``torchrun``: ranks by torchrun, and what is beside them by subprocesses."""

from collections.abc import Callable, Sequence
from functools import partial

from attrs import evolve

from ale.errors import InputError
from ale.protocols import Launch
from ale_launch.local import gpus_here, plan_text, start_here
from ale_launch.options import TorchrunOptions
from ale_launch.slots import Slot, assign
from ale_processes.supervised import Running, Supervised
from ale_processes.torchrun import (
    check_ranks,
    process_of_rank_0,
    record_of,
    status_of_run,
    torchrun,
)


class TorchrunLauncher:
    """Starts ``torchrun`` as the run's process; on several machines, once on each."""

    def __init__(self, options: TorchrunOptions) -> None:
        self._options = options

    def plan(self, launch: Launch) -> str:
        """A line for each process, with its cores and GPUs."""
        here = self._here(launch)
        return plan_text(here, self._slots(here))

    async def start(self, launch: Launch, say: Callable[[str], None]) -> Supervised[Slot]:
        """Start the servers and workers, then torchrun, which starts the ranks again itself."""
        here = self._here(launch)
        slots = self._slots(here)

        async def start(slot: Slot) -> Running:
            if slot.process.role == "run" and self._options.node == 0:
                # Else a signal goes to the rank 0 of an earlier start.
                record_of(launch).unlink(missing_ok=True)
            return await start_here(here, slot, target=partial(process_of_rank_0, launch))

        supervised = Supervised(
            here,
            start,
            self._options.grace_s,
            say,
            status=lambda code: status_of_run(launch, code),
        )
        supervised.start(slots)
        return supervised

    def _slots(self, here: Launch) -> Sequence[Slot]:
        return assign(here, here.run.ranks // here.nodes, gpus_here(self._options))

    def _here(self, launch: Launch) -> Launch:
        """What is started on this machine."""
        check_ranks(launch)
        if launch.nodes > 1 and self._options.rendezvous is None:
            message, expected = "'rendezvous' is missing", "HOST:PORT, the same on every machine"
            raise InputError.of(message, path="launch.rendezvous", expected=expected)
        node = self._options.node
        name = launch.run.name if node == 0 else f"{launch.run.name}-{node}"
        command = torchrun(launch, self._where(launch), restarts=launch.restarts)
        run = evolve(launch.run, name=name, command=command)
        return evolve(launch, run=run, others=launch.others if node == 0 else ())

    def _where(self, launch: Launch) -> Sequence[str]:
        if launch.nodes == 1:
            return ("--standalone",)
        address, rendezvous = self._options.address, str(self._options.rendezvous)
        # torchrun knows this machine only by its name and the addresses that this resolves to.
        meets_here = self._options.node == 0 and rendezvous.rpartition(":")[0] == address
        return (
            *("--nnodes", str(launch.nodes), "--rdzv-id", launch.name, "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", rendezvous),
            *(() if address is None else ("--local-addr", address)),
            *(("--rdzv-conf", "is_host=1") if meets_here else ()),
        )
