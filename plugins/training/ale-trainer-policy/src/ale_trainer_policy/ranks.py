"""Worker processes (ranks) of a sharded learner: their start, and the calls they serve.

The ranks are started by the trainer itself, on this machine, or by torchrun, on any number of
machines, with this module in front of ``ale``'s arguments:

    torchrun --nproc-per-node 4 -m ale_trainer_policy.ranks run CONFIG

Rank 0 then runs ``ale``, with ``trainer.processes`` equal to the number of ranks; the others
execute its calls until it ends.
"""

import atexit
import os
import runpy
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from ale.errors import AleError, StoreError
from ale_trainer_policy.limits import LESS_MEMORY
from ale_trainer_policy.sharded import ShardedLearner, sharded_learner
from ale_training.memory import naming_lack_of_memory

TIMEOUT = timedelta(minutes=30)
"""Limit on a collective within a call; between calls, ranks wait as long as sampling takes."""
CALL_TIMEOUT = timedelta(days=365)
JOIN_TIMEOUT = timedelta(minutes=10)
"""Limit on the start of all ranks, of which one may be lost before it has joined."""
FAILED = 1
"""Exit status of ``ale`` after a failure during a run."""
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Variable with which the ranks meet in a store of their own at each start."""
LEARN = "learn"
"""The first call of rank 0, with model, options, critic and placement."""

_calls: dist.ProcessGroup | None = None
"""The process group over which calls are sent."""


def join_process_group(method: str, rank: int, n: int, *, local_rank: int, gpu: bool) -> None:
    """Join the process group and wait for the other ranks.

    Args:
        method: as for ``init_process_group``: ``env://``, or a file that does not exist yet.
    """
    if gpu:
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
    dist.init_process_group(
        backend, init_method=method, rank=rank, world_size=n, timeout=JOIN_TIMEOUT
    )
    global _calls
    _calls = dist.new_group(backend="gloo", timeout=JOIN_TIMEOUT)
    _set_pg_timeout(TIMEOUT)
    _set_pg_timeout(CALL_TIMEOUT, _calls)


def launched_by_torchrun() -> bool:
    """Was this process started by torchrun, and has it joined the group?"""
    return dist.is_torchelastic_launched() and dist.is_initialized()


def broadcast_call(method: str | None, *arguments: Any, **named: Any) -> None:
    """Make every other rank call a method of its learner; None ends them."""
    dist.broadcast_object_list([method, arguments, named], src=0, group=_calls)


def serve_calls() -> None:
    """Execute rank 0's calls until it sends None: the main loop of every other rank.

    SIGINT is ignored: Ctrl-C reaches every process of a terminal, and rank 0 handles it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    learner: ShardedLearner | None = None
    while True:
        call: list[Any] = [None, None, None]
        dist.broadcast_object_list(call, src=0, group=_calls)
        method, arguments, named = call
        if method is None:
            break
        if method == LEARN:
            model, options, critic, placement = arguments
            if placement.device == "cpu":
                torch.set_num_threads(1)
            learner = sharded_learner(model, options, critic, placement, (None, None))
        else:
            # Errors with checkpoint files are raised on all ranks at once; rank 0 reports them.
            with suppress(StoreError):
                getattr(learner, method)(*arguments, **named)
    if learner is not None:
        with suppress(StoreError):
            learner.finish_saving()
    dist.destroy_process_group()


def worker_main(rank: int, n: int, rendezvous: str, *, gpu: bool) -> None:
    """Main function of a process that the trainer started.

    What ends it is written beside `rendezvous`, for rank 0 to report.
    """
    join_process_group(f"file://{rendezvous}", rank, n, local_rank=rank, gpu=gpu)
    try:
        with naming_lack_of_memory("it", LESS_MEMORY):
            serve_calls()
    except Exception as error:
        cause_of_end(rendezvous, rank).write_text(str(error) or type(error).__name__)
        if isinstance(error, AleError):
            sys.exit(FAILED)
        raise


def cause_of_end(rendezvous: str, rank: int) -> Path:
    """The file in which a rank that was started by the trainer says what has ended it."""
    return Path(f"{rendezvous}-{rank}")


def main() -> None:
    """Main function of a process that torchrun started.

    Raises:
        SystemExit: with the exit status of ``ale``.
    """
    if "RANK" not in os.environ:
        sys.exit("torchrun starts this: torchrun --nproc-per-node N -m ale_trainer_policy.ranks")
    rank, n, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if _shares_the_store_of_an_earlier_start():
        sys.exit(f"ranks that torchrun may start again need {OWN_STORE}=1 in its environment")
    # The group is made in C++, which does not return to Python for a signal.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    join_process_group("env://", rank, n, local_rank=local, gpu=torch.cuda.is_available())
    signal.signal(signal.SIGINT, previous)
    if rank != 0:
        # torchrun sends SIGTERM to every rank and later kills them: rank 0 drains with the others.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        serve_calls()
        exit_process(0)
    try:
        runpy.run_module("ale", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        # After a failure the others may be blocked in a step's collective and can't receive a call:
        # torchrun ends them, because this exit status is not 0.
        if end.code != FAILED:
            broadcast_call(None)
            dist.destroy_process_group()
        if end.code is None or isinstance(end.code, int):
            exit_process(end.code or 0)
        raise


def _shares_the_store_of_an_earlier_start() -> bool:
    """True if torchrun keeps one store over all starts: a later one reads addresses of lost ranks.

    See `torch.distributed.elastic.rendezvous.dynamic_rendezvous` of torch 2.13.
    """
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    return shared and restarts > 0 and dist.is_torchelastic_launched()


def exit_process(status: int) -> NoReturn:
    """Run exit handlers and flush, then exit without finalising the interpreter.

    In about one of thirty runs a rank aborted in finalisation ("terminate called without an active
    exception"), apparently in a thread of gloo that released a finished collective's tensors.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    # The trainer must import the same module that joined, because that one holds the group.
    import ale_trainer_policy.ranks

    ale_trainer_policy.ranks.main()
