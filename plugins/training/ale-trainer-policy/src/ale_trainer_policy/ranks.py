"""The processes among which a learner is sharded: how they meet, and what they do.

Two ways to have several: the trainer starts them itself, on this machine; or torchrun does, on any
number of machines, with this module in front of ``ale``'s own arguments:

    torchrun --nproc-per-node 4 -m ale_trainer_policy.ranks run CONFIG

Rank 0 then is ``ale``, with ``trainer.processes`` saying how many ranks there are; the others do
what it tells them, until it ends.
"""

import atexit
import os
import runpy
import signal
import sys
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.sharded import ShardedLearner, sharded_learner

TIMEOUT = timedelta(minutes=30)
FAILED = 1
"""The status of ``ale`` where something failed while it ran."""
LEARN = "learn"
"""What rank 0 calls first: model and options."""


def meet(method: str, rank: int, n: int, *, local_rank: int, gpu: bool) -> None:
    """Wait for the other ranks.

    Args:
        method: as of ``init_process_group``: ``env://``, or a file that is not there yet.
    """
    if gpu:
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
    dist.init_process_group(backend, init_method=method, rank=rank, world_size=n, timeout=TIMEOUT)


def launched() -> bool:
    """Did torchrun start this process, which has met the others?"""
    return dist.is_torchelastic_launched() and dist.is_initialized()


def tell(method: str | None, *arguments: Any) -> None:
    """Let every other rank call a method of its learner; None ends them."""
    dist.broadcast_object_list([method, arguments], src=0)


def serve(local_rank: int) -> None:
    """What a rank other than 0 does until rank 0 says that it is over.

    Ctrl-C reaches every process of a terminal, and is rank 0's to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    learner: ShardedLearner | None = None
    while True:
        said: list[Any] = [None, None]
        dist.broadcast_object_list(said, src=0)
        method, arguments = said
        if method is None:
            break
        if method == LEARN:
            learner = _learner(*arguments, local_rank=local_rank)
        else:
            getattr(learner, method)(*arguments)
    dist.destroy_process_group()


def _learner(model: Any, options: LearnOptions, *, local_rank: int) -> ShardedLearner:
    if next(model.parameters()).device.type == "cpu":
        torch.set_num_threads(1)
    return sharded_learner(model, options, local_rank)


def started(rank: int, n: int, meeting: str, *, gpu: bool) -> None:
    """A process that the trainer has started."""
    meet(f"file://{meeting}", rank, n, local_rank=rank, gpu=gpu)
    serve(rank)


def main() -> None:
    """A process that torchrun has started.

    Raises:
        SystemExit: with the status of ``ale``.
    """
    if "RANK" not in os.environ:
        sys.exit("torchrun starts this: torchrun --nproc-per-node N -m ale_trainer_policy.ranks")
    rank, n, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    meet("env://", rank, n, local_rank=local, gpu=torch.cuda.is_available())
    if rank != 0:
        # torchrun asks every rank to end, and kills after a while: rank 0 has a run to store.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        serve(local)
        leave(0)
    try:
        runpy.run_module("ale", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        # After a failure the others may be waiting in the middle of a step, where nothing can be
        # told to them: torchrun ends them, as this status is not 0.
        if end.code != FAILED:
            tell(None)
            dist.destroy_process_group()
        if end.code is None or isinstance(end.code, int):
            leave(end.code or 0)
        raise


def leave(status: int) -> NoReturn:
    """End this process as usual, but without taking the interpreter apart.

    Once in some thirty runs a rank aborted there ("terminate called without an active exception"),
    it seems by a thread of gloo's that let go of a finished collective's tensors just then.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
