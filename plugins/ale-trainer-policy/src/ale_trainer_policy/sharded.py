"""One learner over several processes: FSDP2 shards weights, gradients and moments over them.

This process is rank 0; the others are started by it and end with it. Every rank calls the same
method with the same arguments, in the same order: rank 0 says which by a broadcast. Micro-batches
are dealt out in rounds, one to each rank; a rank without one works on a copy without weights, so
that all of them meet in the collectives.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from attrs import evolve
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ale.errors import AleError
from ale_trainer_policy.learner import Learner, Measured
from ale_trainer_policy.models import whole
from ale_trainer_policy.options import LearnOptions, ObjectiveParts
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.tree import Datum, pack

TIMEOUT = timedelta(minutes=30)
Pieces = Sequence[Sequence[Sample]]


class ShardedLearner(Learner):
    """One rank's part of the learner; its methods are collective.

    Args:
        model: whole; it is sharded in place, layer by layer.
        options: as for `Learner`.
        mesh: of one dimension, over all ranks.
    """

    def __init__(self, model: Any, options: LearnOptions, mesh: DeviceMesh) -> None:
        self._rank, self._n = mesh.get_rank(), mesh.size()
        blocks = set(getattr(model, "_no_split_modules", None) or ())
        for module in model.modules():
            if type(module).__name__ in blocks:
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        super().__init__(model, options, fused=False)
        # FSDP averages over the ranks, and a loss here is a plain sum.
        self.scale = float(self._n)
        self.collective = True

    def round(self, pieces: Pieces, parts: ObjectiveParts) -> list[Measured]:
        """Forward and backward over at most one piece a rank; what each measured, on rank 0."""
        datum = pack(self._mine(pieces))
        found: list[Measured] = self._gathered(self.forward_backward(datum, parts), len(pieces))
        return found

    def round_logp(self, pieces: Pieces) -> list[Floats]:
        """As `round`, of log pi."""
        found: list[Floats] = self._gathered(self.logp(self._mine(pieces)), len(pieces))
        return found

    def _mine(self, pieces: Pieces) -> Sequence[Sample]:
        if self._rank < len(pieces):
            return pieces[self._rank]
        return [
            evolve(each, weight=0.0 * each.weight, imitation=0.0 * each.imitation)
            for each in pieces[0]
        ]

    def _gathered(self, found: Any, n: int) -> Any:
        everyone: list[Any] | None = [None] * self._n if self._rank == 0 else None
        dist.gather_object(found, everyone, dst=0)
        return [] if everyone is None else everyone[:n]

    def state(self) -> dict[str, Tensor]:
        """As of `Learner`, every tensor whole, on every rank."""
        return {name: whole(tensor) for name, tensor in super().state().items()}

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """As of `Learner`, from whole tensors."""
        like = {
            name: master
            for name, master in zip(self.names, self.masters, strict=True)
            if isinstance(master, DTensor)
        }
        super().load_state({k: _sharded(k, t, like) for k, t in tensors.items()}, updates)


def _sharded(key: str, tensor: Tensor, like: Mapping[str, DTensor]) -> Tensor:
    """A tensor of a checkpoint in the shape in which its parameter is kept here."""
    kind, _, name = key.partition("/")
    master = like.get(name if kind == "weight" else name.partition("/")[2])
    if master is None or kind == "random" or tensor.dim() == 0 or tensor.shape != master.shape:
        return tensor
    return distribute_tensor(tensor, master.device_mesh, master.placements)


class Fleet:
    """All ranks, as one learner: what `PolicyTrainer` calls.

    Args:
        model: whole, in this process; the others are sent a copy.
        options: with the number of processes.
    """

    def __init__(self, model: Any, options: LearnOptions) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ale-ranks-")
        meeting = Path(self._folder.name) / "meeting"
        context = torch.multiprocessing.get_context("spawn")
        self._workers = [
            context.Process(target=_serve, args=(model, options, rank, str(meeting)), daemon=True)
            for rank in range(1, options.processes)
        ]
        for worker in self._workers:
            worker.start()
        self._local = _join(model, options, 0, str(meeting))

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
            yield from zip((pack(piece) for piece in some), found, strict=True)

    def logps(self, pieces: Pieces) -> list[Floats]:
        """log pi of each piece."""
        return [logp for some in self._rounds(pieces) for logp in self._all("round_logp", some)]

    def _rounds(self, pieces: Pieces) -> Iterator[Pieces]:
        n = len(self._workers) + 1
        for start in range(0, len(pieces), n):
            yield pieces[start : start + n]

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
        dist.broadcast_object_list([method, arguments], src=0)
        return getattr(self._local, method)(*arguments)

    def close(self) -> None:
        """End the other processes. May be called again."""
        if self._workers and dist.is_initialized():
            dist.broadcast_object_list([None, ()], src=0)
            for worker in self._workers:
                worker.join()
            dist.destroy_process_group()
            self._folder.cleanup()
        self._workers = []


def _join(model: Any, options: LearnOptions, rank: int, meeting: str) -> ShardedLearner:
    """Meet the other ranks, and take this one's part of the model."""
    gpu = next(model.parameters()).device.type == "cuda"
    if gpu:
        torch.cuda.set_device(rank)
        model = model.to(f"cuda:{rank}")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpu else "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=options.processes,
        timeout=TIMEOUT,
    )
    mesh = init_device_mesh("cuda" if gpu else "cpu", (options.processes,))
    return ShardedLearner(model, options, mesh)


def _serve(model: Any, options: LearnOptions, rank: int, meeting: str) -> None:
    """What a rank other than 0 does until rank 0 says that it is over."""
    torch.set_num_threads(1 if next(model.parameters()).device.type == "cpu" else 4)
    learner = _join(model, options, rank, meeting)
    while True:
        said: list[Any] = [None, None]
        dist.broadcast_object_list(said, src=0)
        method, arguments = said
        if method is None:
            break
        getattr(learner, method)(*arguments)
    dist.destroy_process_group()
