"""The launcher ``torchrun``: ranks by torchrun, and what is beside them by subprocesses."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from ale.errors import InputError, Problem
from ale.protocols import Launch
from ale_launch.local import gpus_here, plan_text
from ale_launch.options import TorchrunOptions
from ale_launch.slots import Slot, assign
from ale_launch.supervised import Supervised

_RANK = Path(__file__).with_name("rank.py")
_RECORD = ".rank0.json"


class TorchrunLauncher:
    """Starts ``torchrun`` as the run's process; on several machines, once on each."""

    def __init__(self, options: TorchrunOptions) -> None:
        self._options = options

    def plan(self, launch: Launch) -> str:
        """A line for each process, with its cores and GPUs."""
        return plan_text(launch, self._slots(launch))

    async def start(self, launch: Launch, say: Callable[[str], None]) -> Supervised:
        """Start the servers and workers, then torchrun, which starts the ranks again itself."""
        slots, record = self._slots(launch), _record_path(launch)
        record.unlink(missing_ok=True)
        supervised = Supervised(
            launch,
            self._options.grace_s,
            say,
            status=lambda code: code or int(_record(record).get("status", 0)),
            target=lambda: _rank_0(record),
        )
        supervised.start(slots)
        return supervised

    def _slots(self, launch: Launch) -> Sequence[Slot]:
        if problems := list(self._problems(launch)):
            raise InputError(problems)
        here = launch.run.ranks // launch.nodes
        others = launch.others if self._options.first else ()
        run = evolve(launch.run, command=self._command(launch, here))
        return assign(evolve(launch, run=run, others=others), here, gpus_here(self._options))

    def _problems(self, launch: Launch) -> Sequence[Problem]:
        run, nodes = launch.run, launch.nodes
        if run.rank_command is None:
            message = "the trainer has no processes that torchrun could start"
            return [Problem(message=message, path="trainer", expected="trainer: {type: policy}")]
        if run.ranks % nodes:
            message = f"{run.ranks} trainer processes can't be spread evenly over {nodes} nodes"
            return [Problem(message=message, path="launch.nodes")]
        if nodes > 1 and self._options.rendezvous is None:
            message, expected = "'rendezvous' is missing", "HOST:PORT, the same on every machine"
            return [Problem(message=message, path="launch.rendezvous", expected=expected)]
        return []

    def _command(self, launch: Launch, here: int) -> Sequence[str]:
        assert launch.run.rank_command is not None
        where = ["--standalone"]
        if launch.nodes > 1:
            where = ["--nnodes", str(launch.nodes), "--rdzv-backend", "c10d"]
            where += ["--rdzv-id", launch.name, "--rdzv-endpoint", str(self._options.rendezvous)]
        address = self._options.address
        return (
            *(sys.executable, "-P", "-m", "torch.distributed.run", *where),
            *(() if address is None else ("--local-addr", address)),
            *("--nproc-per-node", str(here), "--max-restarts", str(launch.restarts)),
            *("--no-python", sys.executable, "-I", str(_RANK), str(_record_path(launch))),
            *launch.run.rank_command,
        )


def _record_path(launch: Launch) -> Path:
    return launch.log(launch.run.name).with_name(_RECORD)


def _record(path: Path) -> dict[str, Any]:
    """What rank 0 has written; nothing if it has not been started."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def _rank_0(path: Path) -> int | None:
    """The id of rank 0's process while it runs on this machine."""
    record = _record(path)
    return record.get("pid") if record.get("host") == os.uname().nodename else None
