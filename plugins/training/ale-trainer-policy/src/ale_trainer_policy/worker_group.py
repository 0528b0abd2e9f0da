"""A group of worker processes as one learner: each call on rank 0 runs on every rank."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ale.errors import AleError
from ale_trainer_policy import ranks
from ale_trainer_policy.critic import Critic
from ale_trainer_policy.learner import Learner, Measured
from ale_trainer_policy.options import LearnOptions, ObjectiveParts
from ale_trainer_policy.samples import Floats
from ale_trainer_policy.sharded import Pieces, sharded_learner
from ale_trainer_policy.tree import Datum


class WorkerGroup:
    """All ranks as one learner, with the interface of `Learner`.

    Under torchrun these are its ranks; otherwise processes started here, which end with this one.

    Args:
        model: whole, in this process; the others receive a copy.
        options: with `processes`.
        critic: trained beside the model.

    Raises:
        AleError: torchrun has started a different number of ranks.
    """

    def __init__(self, model: Any, options: LearnOptions, critic: Critic | None = None) -> None:
        self._workers: Sequence[SpawnProcess] = ()
        self._n = options.processes
        if not ranks.launched_by_torchrun():
            self._start(gpu=next(model.parameters()).device.type == "cuda")
        elif dist.get_world_size() != self._n:
            found = dist.get_world_size()
            raise AleError(f"trainer.processes is {self._n}, but torchrun started {found} ranks")
        ranks.broadcast_call(ranks.LEARN, model, options, critic)
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._local = sharded_learner(model, options, critic, rank)

    def _start(self, *, gpu: bool) -> None:
        context = torch.multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory(prefix="ale-ranks-") as folder:
            rendezvous = str(Path(folder) / "meeting")
            self._workers = [
                context.Process(
                    target=ranks.worker_main,
                    args=(rank, self._n, rendezvous),
                    kwargs={"gpu": gpu},
                    daemon=True,
                )
                for rank in range(1, self._n)
            ]
            for worker in self._workers:
                worker.start()
            ranks.join_process_group(f"file://{rendezvous}", 0, self._n, local_rank=0, gpu=gpu)

    @property
    def model(self) -> Any:
        """This rank's shards."""
        return self._local.model

    @property
    def updates(self) -> int:
        """Updates that have been applied."""
        return self._local.updates

    def rate(self, lr: float | None = None) -> float:
        """As of `Learner`."""
        return self._local.rate(lr)

    def forward_backward_each(
        self, pieces: Pieces, parts: ObjectiveParts
    ) -> Iterator[tuple[Datum, Measured]]:
        """Accumulate the gradients of these micro-batches; yields each with its measurements."""
        for some in self._rounds(pieces):
            found = self._all("round", some, parts)
            yield from zip((self._local.packed(piece) for piece in some), found, strict=True)

    def logps(self, pieces: Pieces) -> list[Floats]:
        """log pi of each micro-batch."""
        return [logp for some in self._rounds(pieces) for logp in self._all("round_logp", some)]

    def values(self, pieces: Pieces) -> list[Floats]:
        """As of `Learner`."""
        return [
            values for some in self._rounds(pieces) for values in self._all("round_values", some)
        ]

    def _rounds(self, pieces: Pieces) -> Iterator[Pieces]:
        for start in range(0, len(pieces), self._n):
            yield pieces[start : start + self._n]

    def optim_step(
        self, lr: float | None = None, policy: bool = True, critic: bool = True
    ) -> Sequence[float] | None:
        """As of `Learner`."""
        norms: Sequence[float] | None = self._all("optim_step", lr, policy, critic)
        return norms

    def zero_grad(self) -> None:
        """As of `Learner`."""
        self._all("zero_grad")

    def reset_moments(self) -> None:
        """As of `Learner`."""
        self._all("reset_moments")

    def weights(self) -> dict[str, Tensor]:
        """The trained parameters, unsharded, by name."""
        prefix = "weight/"
        return {k.removeprefix(prefix): t for k, t in self.state().items() if k.startswith(prefix)}

    def full_weights(self) -> dict[str, Tensor]:
        """All weights under the names of the plain model."""
        found: dict[str, Tensor] = self._all("full_weights")
        return found

    def state(self) -> dict[str, Tensor]:
        """As of `Learner`, unsharded."""
        found: dict[str, Tensor] = self._all("state")
        return found

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """As of `Learner`."""
        self._local.check(tensors)
        self._all("load_state", dict(tensors), updates)

    def _all(self, method: str, *arguments: Any) -> Any:
        """Call a method on every rank; returns rank 0's result.

        Raises:
            AleError: a rank has exited.
        """
        gone = [worker.exitcode for worker in self._workers if worker.exitcode is not None]
        if gone:
            raise AleError(f"{len(gone)} of the trainer's processes ended, with exit code {gone}")
        ranks.broadcast_call(method, *arguments)
        return getattr(self._local, method)(*arguments)

    def close(self) -> None:
        """End the processes that were started here. Idempotent."""
        if self._workers and dist.is_initialized():
            ranks.broadcast_call(None)
            for worker in self._workers:
                worker.join()
            dist.destroy_process_group()
        self._workers = ()


def make_learner(
    model: Any, options: LearnOptions, critic: Critic | None = None
) -> Learner | WorkerGroup:
    """A learner in this process, or in `options.processes`. Raises as `WorkerGroup`."""
    several = options.processes > 1 or ranks.launched_by_torchrun()
    return (WorkerGroup if several else Learner)(model, options, critic)
