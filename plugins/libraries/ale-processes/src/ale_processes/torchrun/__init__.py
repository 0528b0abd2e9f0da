"""The ranks of a trainer under torchrun: the command, and how the run ended."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ale.errors import InputError
from ale.protocols import Launch

__all__ = [
    "RANK_0",
    "check_ranks",
    "process_of_rank_0",
    "record_of",
    "status_of_run",
    "torchrun",
]

_RANK = Path(__file__).with_name("rank.py")
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Variable with which torchrun's ranks meet in a store of their own after each start.

Without it they share torchrun's, which lasts: ranks that are started again read there at which
addresses those before them could be reached, and none of them answers (torch 2.13).
"""
RANK_0 = ".rank0.json"
"""Name of the file, beside the logs, in which rank 0 records how the run ended."""


def check_ranks(launch: Launch) -> None:
    """Raise `InputError` if the ranks can't be spread evenly, or the trainer has no ranks."""
    run, nodes = launch.run, launch.nodes
    if run.rank_command is None:
        message = "the trainer has no processes that torchrun could start"
        raise InputError.of(message, path="trainer", expected="trainer: {type: policy}")
    if run.ranks % nodes:
        message = f"{run.ranks} trainer processes can't be spread evenly over {nodes} nodes"
        raise InputError.of(message, path="launch.nodes")


def torchrun(launch: Launch, where: Sequence[str], *, restarts: int) -> Sequence[str]:
    """The command that starts the ranks of one machine.

    Args:
        where: torchrun's own options about the machines: ``--standalone``, ``--nnodes`` and more.
        restarts: how often torchrun starts all ranks again after one is lost.
    """
    assert launch.run.rank_command is not None
    return (
        *("env", f"{OWN_STORE}=1"),
        *(sys.executable, "-P", "-m", "torch.distributed.run", *where),
        *("--nproc-per-node", str(launch.run.ranks // launch.nodes)),
        *("--max-restarts", str(restarts)),
        *("--no-python", sys.executable, "-I", str(_RANK), str(record_of(launch))),
        *launch.run.rank_command,
    )


def record_of(launch: Launch) -> Path:
    """The file that rank 0 writes; to be removed before the start."""
    return launch.log(launch.run.name).with_name(RANK_0)


def status_of_run(launch: Launch, code: int) -> int:
    """The run's exit status, given torchrun's, which is 0 if rank 0 has come to an end."""
    return code or int(_read(record_of(launch)).get("status", 0))


def process_of_rank_0(launch: Launch) -> int | None:
    """The id of rank 0's process, if it runs on this machine."""
    record = _read(record_of(launch))
    return record.get("pid") if record.get("host") == os.uname().nodename else None


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found
