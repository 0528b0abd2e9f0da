"""The launcher ``local``: subprocesses of this machine."""

import os
import shlex
from collections.abc import Callable, Sequence
from functools import partial

from ale.errors import InputError
from ale.protocols import Launch
from ale_launch.options import LocalOptions
from ale_launch.slots import Slot, assign, gpus_of_this_machine
from ale_processes.supervised import Child, Supervised


class LocalLauncher:
    """Starts every process as a subprocess with CPU cores and GPUs of its own."""

    def __init__(self, options: LocalOptions) -> None:
        self._options = options

    def plan(self, launch: Launch) -> str:
        """A line for each process, with its cores and GPUs."""
        return plan_text(launch, self._slots(launch))

    async def start(self, launch: Launch, say: Callable[[str], None]) -> Supervised[Slot]:
        """Start the servers and workers, then the run."""
        start = partial(start_here, launch)
        supervised = Supervised(launch, start, self._options.grace_s, say)
        supervised.start(self._slots(launch))
        return supervised

    def _slots(self, launch: Launch) -> Sequence[Slot]:
        if launch.nodes > 1:
            message = f"the launcher 'local' has one machine, not {launch.nodes}"
            raise InputError.of(message, path="launch.nodes")
        return assign(launch, launch.run.ranks, gpus_here(self._options))


async def start_here(
    launch: Launch, slot: Slot, target: Callable[[], int | None] = lambda: None
) -> Child:
    """Start a process with the cores and GPUs of its slot; `target` as of `Child.start`."""
    return await Child.start(
        slot.process.command,
        environ={**os.environ, **slot.environ(launch)},
        log=launch.log(slot.name),
        cores=slot.cores,
        target=target if slot.process.role == "run" else lambda: None,
    )


def gpus_here(options: LocalOptions) -> Sequence[str]:
    """The GPUs to give out."""
    given = options.gpus_here
    return gpus_of_this_machine(os.environ) if given is None else given


def plan_text(launch: Launch, slots: Sequence[Slot]) -> str:
    """What is started, a block for each process."""
    lines = [f"run directory: {launch.directory}"]
    for slot in (*slots[1:], *slots[:1]):
        cores = f"CPU cores {','.join(map(str, slot.cores))}" if slot.cores else "any CPU core"
        gpus = f"GPUs {','.join(slot.gpus)}" if slot.gpus else "no GPU"
        lines.append(f"{slot.name} ({slot.process.role}): {cores}, {gpus}, log {slot.name}.log")
        lines.append(f"  {shlex.join(slot.process.command)}")
    return "\n".join(lines)
