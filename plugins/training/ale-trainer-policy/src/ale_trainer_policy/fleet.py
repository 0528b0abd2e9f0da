"""All ranks as one learner: what rank 0 calls, every rank does."""

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
from ale_trainer_policy.learner import Learner, Measured
from ale_trainer_policy.options import LearnOptions, ObjectiveParts
from ale_trainer_policy.samples import Floats
from ale_trainer_policy.sharded import Pieces, sharded_learner
from ale_trainer_policy.tree import Datum


class Fleet:
    """All ranks, as one learner: what `PolicyTrainer` calls.

    Under torchrun these are its ranks; else processes that are started here and end with this one.

    Args:
        model: whole, in this process; the others are sent a copy.
        options: with the number of processes.

    Raises:
        AleError: torchrun has started another number of ranks.
    """

    def __init__(self, model: Any, options: LearnOptions) -> None:
        self._workers: Sequence[SpawnProcess] = ()
        self._n = options.processes
        if not ranks.launched():
            self._start(gpu=next(model.parameters()).device.type == "cuda")
        elif dist.get_world_size() != self._n:
            found = dist.get_world_size()
            raise AleError(f"trainer.processes is {self._n}, but torchrun started {found} ranks")
        ranks.tell(ranks.LEARN, model, options)
        self._local = sharded_learner(model, options, int(os.environ.get("LOCAL_RANK", "0")))

    def _start(self, *, gpu: bool) -> None:
        context = torch.multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory(prefix="ale-ranks-") as folder:
            meeting = str(Path(folder) / "meeting")
            self._workers = [
                context.Process(
                    target=ranks.started,
                    args=(rank, self._n, meeting),
                    kwargs={"gpu": gpu},
                    daemon=True,
                )
                for rank in range(1, self._n)
            ]
            for worker in self._workers:
                worker.start()
            ranks.meet(f"file://{meeting}", 0, self._n, local_rank=0, gpu=gpu)

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
        """Add the gradients of these pieces; each piece as a datum with what was measured."""
        for some in self._rounds(pieces):
            found = self._all("round", some, parts)
            yield from zip((self._local.packed(piece) for piece in some), found, strict=True)

    def logps(self, pieces: Pieces) -> list[Floats]:
        """log pi of each piece."""
        return [logp for some in self._rounds(pieces) for logp in self._all("round_logp", some)]

    def _rounds(self, pieces: Pieces) -> Iterator[Pieces]:
        for start in range(0, len(pieces), self._n):
            yield pieces[start : start + self._n]

    def optim_step(self, lr: float | None = None) -> float | None:
        """As of `Learner`."""
        norm: float | None = self._all("optim_step", lr)
        return norm

    def zero_grad(self) -> None:
        """As of `Learner`."""
        self._all("zero_grad")

    def weights(self) -> dict[str, Tensor]:
        """The trained parameters, whole, by name."""
        prefix = "weight/"
        return {k.removeprefix(prefix): t for k, t in self.state().items() if k.startswith(prefix)}

    def full_weights(self) -> dict[str, Tensor]:
        """All weights under the names of the plain model."""
        found: dict[str, Tensor] = self._all("full_weights")
        return found

    def state(self) -> dict[str, Tensor]:
        """As of `Learner`, whole."""
        found: dict[str, Tensor] = self._all("state")
        return found

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """As of `Learner`."""
        self._local.check(tensors)
        self._all("load_state", dict(tensors), updates)

    def _all(self, method: str, *arguments: Any) -> Any:
        """Call a method on every rank; what it gave here.

        Raises:
            AleError: a rank is gone.
        """
        gone = [worker.exitcode for worker in self._workers if worker.exitcode is not None]
        if gone:
            raise AleError(f"{len(gone)} of the trainer's processes ended, with exit code {gone}")
        ranks.tell(method, *arguments)
        return getattr(self._local, method)(*arguments)

    def close(self) -> None:
        """End the processes that were started here. May be called again."""
        if self._workers and dist.is_initialized():
            ranks.tell(None)
            for worker in self._workers:
                worker.join()
            dist.destroy_process_group()
        self._workers = ()


def learner_of(model: Any, options: LearnOptions) -> Learner | Fleet:
    """The learner in as many processes as there are to be. Raises as `Fleet`."""
    several = options.processes > 1 or ranks.launched()
    return (Fleet if several else Learner)(model, options)
