"""A group of worker processes as one learner: each call on rank 0 runs on every rank."""

import atexit
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partialmethod
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from ale.errors import AleError, LostProcessError
from ale.protocols import Objective
from ale_trainer_policy import ranks
from ale_trainer_policy.critic import Critic
from ale_trainer_policy.learner import Learner, Measured
from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.placement import device_of, placement_of, skeleton
from ale_trainer_policy.samples import Floats
from ale_trainer_policy.sharded import Pieces, sharded_learner
from ale_trainer_policy.tree import Datum

_EXIT_S = 5.0
"""A rank that has failed exits within these seconds."""


class OwnRanks:
    """Processes started here, which wait for calls; this process is rank 0 of their group.

    Args:
        n: number of all ranks.
        gpu: each rank has a GPU of its own.
    """

    def __init__(self, n: int, *, gpu: bool) -> None:
        get = torch.multiprocessing.get_context
        # Forks share imports that take seconds, but can't use CUDA once their parent has.
        context = get("spawn") if gpu else get("forkserver")
        context.set_forkserver_preload(["ale_trainer_policy.trainer"])
        # Kept to the end: later groups of these processes use this folder to meet, too.
        folder = tempfile.mkdtemp(prefix="ale-ranks-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._rendezvous = rendezvous = str(Path(folder) / "meeting")
        self._workers: Sequence[BaseProcess] = [
            context.Process(
                target=ranks.worker_main,
                args=(rank, n, rendezvous),
                kwargs={"gpu": gpu},
                daemon=True,
            )
            for rank in range(1, n)
        ]
        for worker in self._workers:
            worker.start()
        ranks.join_process_group(f"file://{rendezvous}", 0, n, local_rank=0, gpu=gpu)

    def check(self, wait_s: float = 0.0) -> None:
        """Check that every process runs, and still does after some seconds.

        Raises:
            LostProcessError: one was killed.
            AleError: one has failed.
        """
        connection.wait([worker.sentinel for worker in self._workers], wait_s)
        for rank, worker in enumerate(self._workers, 1):
            code = worker.exitcode
            if code is not None and code < 0:
                how = signal.Signals(-code).name
                raise LostProcessError(f"rank {rank} of the trainer was killed by {how}")
            if code is not None:
                message = f"rank {rank} of the trainer ended with exit code {code}"
                with suppress(FileNotFoundError):
                    message += f": {ranks.cause_of_end(self._rendezvous, rank).read_text()}"
                raise AleError(message)

    def close(self) -> None:
        """End the processes. Idempotent."""
        if dist.is_initialized():
            if all(worker.exitcode is None for worker in self._workers):
                ranks.broadcast_call(None)
            else:
                for worker in self._workers:  # they may wait for one that is missing
                    worker.kill()
            for worker in self._workers:
                worker.join()
            dist.destroy_process_group()
            # This cache holds groups under meshes that equal those of ranks started later.
            _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
        self._workers = ()


class WorkerGroup:
    """All ranks as one learner, with the interface of `Learner`.

    These are the ranks of the process group that this process is in, such as torchrun's; otherwise
    processes started here, which end with this one.

    Args:
        model: a whole model in this process, not changed; every rank receives its shards.
        options: the trainer's, with `processes`.
        critic: trained beside the model.
        device: the shards' device; if it is a GPU, each rank has its own.
    """

    def __init__(
        self, model: Any, options: LearnOptions, critic: Critic | None, device: torch.device
    ) -> None:
        self._own: OwnRanks | None = None
        self._n = options.processes
        if not dist.is_initialized():
            self._own = OwnRanks(self._n, gpu=device.type == "cuda")
        placement = placement_of(model, options, device)
        empty = skeleton(model), options, None if critic is None else skeleton(critic), placement
        with self._naming_lost_ranks():
            ranks.broadcast_call(ranks.LEARN, *empty)
            self._local = sharded_learner(*empty, sources=(model, critic))

    @property
    def model(self) -> Any:
        """This rank's shards."""
        return self._local.model

    @property
    def updates(self) -> int:
        """Updates that have been applied."""
        return self._local.updates

    def rate(self, lr: float | None = None) -> float:
        """As for `Learner`."""
        return self._local.rate(lr)

    def forward_backward_each(
        self, pieces: Pieces, objective: Objective
    ) -> Iterator[tuple[Datum, Measured]]:
        """Accumulate the gradients of these micro-batches; yield each with its measurements.

        All are computed before the first is yielded: ranks may share gradients only in the last.
        """
        rounds = list(self._rounds(pieces))
        found = [
            measured
            for number, some in enumerate(rounds, 1)
            for measured in self._all("round", some, objective, number == len(rounds))
        ]
        yield from zip((self._local.packed(piece) for piece in pieces), found, strict=True)

    def logps(self, pieces: Pieces) -> list[Floats]:
        """log pi of each micro-batch."""
        return self._each("logp", pieces)

    def values(self, pieces: Pieces) -> list[Floats]:
        """As for `Learner`."""
        return self._each("value", pieces)

    def _each(self, method: str, pieces: Pieces) -> list[Floats]:
        rounds = self._rounds(pieces)
        return [found for some in rounds for found in self._all("round_of", method, some)]

    def _rounds(self, pieces: Pieces) -> Iterator[Pieces]:
        for start in range(0, len(pieces), self._n):
            yield pieces[start : start + self._n]

    def optim_step(
        self, lr: float | None = None, policy: bool = True, critic: bool = True
    ) -> Sequence[float] | None:
        """As for `Learner`."""
        norms: Sequence[float] | None = self._all("optim_step", lr, policy, critic)
        return norms

    def full_weights(self) -> dict[str, Tensor]:
        """All weights under the names of the plain model."""
        found: dict[str, Tensor] = self._all("full_weights")
        return found

    def start_saving(self, folder: Path, *, background: bool) -> Callable[[], dict[str, str]]:
        """Each rank writes its shards of parameters and moments.

        Args:
            folder: a folder that all ranks, on every machine, can write to.
            background: return as soon as the shards have been copied.

        Returns:
            A function that waits until they are written, and returns the SHA-256 of each file.

        Raises:
            StoreError: they can't be written; the returned function raises this too.
        """
        self._all("start_saving", folder, background=background)
        return self._local.finish_saving

    def load(self, directory: Path, updates: int, shards: Mapping[str, str]) -> None:
        """As for `ShardedLearner`: after a failure the ranks still serve further calls."""
        self._all("load", directory, updates, shards)

    def _all(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method on every rank; returns rank 0's result.

        Raises:
            AleError: a rank has exited.
        """
        if self._own is not None:
            self._own.check()
        with self._naming_lost_ranks():
            ranks.broadcast_call(method, *arguments, **named)
            return getattr(self._local, method)(*arguments, **named)

    # Each as for `Learner`.
    zero_grad = partialmethod(_all, "zero_grad")
    reset_moments = partialmethod(_all, "reset_moments")
    remember = partialmethod(_all, "remember")
    forget = partialmethod(_all, "forget")
    undo = partialmethod(_all, "undo")

    @contextmanager
    def _naming_lost_ranks(self) -> Iterator[None]:
        """If a collective fails because a rank has exited, report which one and why."""
        try:
            yield
        except RuntimeError:
            if self._own is not None:
                self._own.check(_EXIT_S)
            raise

    def close(self) -> None:
        """End the processes that were started here. Idempotent."""
        if self._own is not None:
            self._own.close()
        self._own = None


def make_learner(
    model: Any,
    options: LearnOptions,
    critic: Critic | None = None,
    device: torch.device | None = None,
) -> Learner | WorkerGroup:
    """A learner in this process, or in `options.processes`.

    Args:
        model: trained in place, or the source of the shards.
        options: the trainer's.
        critic: trained beside the model.
        device: the device to train on; None: the model's.

    Raises:
        AleError: torchrun has started a different number of ranks.
    """
    if ranks.launched_by_torchrun() and dist.get_world_size() != options.processes:
        found = dist.get_world_size()
        message = f"trainer.processes is {options.processes}, but torchrun started {found} ranks"
        raise AleError(message)
    device = device or device_of(model)
    if options.is_sharded:
        return WorkerGroup(model, options, critic, device)
    return Learner(model.to(device), options, None if critic is None else critic.to(device))
