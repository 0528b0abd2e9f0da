"""A checkpoint's tensors: in one safetensors file, or in shards that each rank has written.

Shards have torch.distributed.checkpoint's format: each rank reads its own parts of them, even if
the number of ranks that wrote them was different. In neither form does a rank hold a whole model.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor, Replicate
from torch.futures import Future

from ale.errors import StoreError
from ale_training import checkpoint
from ale_training.checkpoint import TENSORS, WEIGHT

SHARDS = "shards"
"""Folder of the shards inside a checkpoint's folder."""
_METADATA = ".metadata"
"""The file that says which tensors each shard has."""


class StoredFile:
    """The tensors of a safetensors file, not read yet; `shapes` has the shape of each by name."""

    def __init__(self, path: Path) -> None:
        """Read names and shapes; raises `StoreError`."""
        self._path = path
        with self._opened() as file:
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with safe_open(self._path, framework="pt") as file:
                yield file
        except (OSError, SafetensorError) as error:
            raise StoreError(f"{self._path} can't be read: {error}") from error

    def read(self, into: Mapping[str, Tensor]) -> None:
        """Fill tensors in place; of a sharded tensor, only this rank's part.

        Only one tensor at a time is whole. Raises `StoreError`.
        """
        with self._opened() as file, torch.no_grad():
            for name, tensor in into.items():
                found = file.get_tensor(name)
                if isinstance(tensor, DTensor):
                    mesh, everywhere = tensor.device_mesh, [Replicate()] * tensor.device_mesh.ndim
                    whole = DTensor.from_local(
                        found.to(mesh.device_type), mesh, everywhere, run_check=False
                    )
                    found = whole.redistribute(placements=tensor.placements).to_local()
                    tensor.to_local().copy_(found)
                else:
                    tensor.copy_(found)


class StoredShards:
    """The tensors that ranks wrote as shards, as `StoredFile`; reading is collective if several
    ranks read.

    Args:
        folder: the folder of the shards.
        group: the ranks that read; None for a process on its own.
    """

    def __init__(self, folder: Path, group: "dist.ProcessGroup | None") -> None:
        self._folder, self._group = folder, group
        with self._reading():
            found = FileSystemReader(folder).read_metadata().state_dict_metadata
        self.shapes = {name: tuple(each.size) for name, each in found.items()}  # type: ignore[union-attr]
        self._dtypes = {name: each.properties.dtype for name, each in found.items()}  # type: ignore[union-attr]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (
            *(OSError, ValueError, KeyError, RuntimeError, EOFError),
            *(pickle.UnpicklingError, CheckpointException),
        ) as error:
            raise StoreError(f"{self._folder} can't be read: {_first(error)}") from error

    def read(self, into: Mapping[str, Tensor]) -> None:
        """As for `StoredFile`."""
        with self._reading(), warnings.catch_warnings():
            # Reading without other ranks is intended.
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            load(
                dict(into),
                storage_reader=FileSystemReader(self._folder),
                process_group=self._group,
                no_dist=self._group is None,
            )

    def empty(self, prefix: str) -> dict[str, Tensor]:
        """Empty tensors to read into, for the names that begin with `prefix`."""
        return {
            name: torch.empty(shape, dtype=self._dtypes[name])
            for name, shape in self.shapes.items()
            if name.startswith(prefix)
        }


Stored = StoredFile | StoredShards


def stored(directory: Path, group: "dist.ProcessGroup | None" = None) -> Stored:
    """The trained parameters and moments of a checkpoint.

    Args:
        directory: the checkpoint's.
        group: all ranks that are to read.

    Raises:
        StoreError: they can't be read.
    """
    shards = directory / SHARDS
    return StoredShards(shards, group) if shards.is_dir() else StoredFile(directory / TENSORS)


def read_weights(directory: Path) -> dict[str, Tensor]:
    """The trained parameters of a checkpoint by name, whole, without the optimiser's moments.

    Raises:
        StoreError: they can't be read.
    """
    found = stored(directory)
    if isinstance(found, StoredShards):
        tensors = found.empty(WEIGHT)
        found.read(tensors)
        return {name.removeprefix(WEIGHT): tensor for name, tensor in tensors.items()}
    return checkpoint.read_weights(directory)


def check_shards(directory: Path, digests: Mapping[str, str], rank: int = 0, n: int = 1) -> None:
    """Check every `n`-th file of a checkpoint's shards: those that fall to this rank.

    Args:
        digests: SHA-256 of each file by name.

    Raises:
        StoreError: a file is damaged or of another checkpoint, or can't be read.
    """
    for name in sorted(digests)[rank::n]:
        checkpoint.check_file(directory / SHARDS / name, digests[name])


@dataclass(frozen=True)
class _Written(WriteResult):
    """What a rank tells the first one about a tensor it has written."""

    digest: str


class _Writer(FileSystemWriter):
    """Each rank computes the SHA-256 of its file; on the first rank, `digests` has those of all."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self.digests: dict[str, str] = {}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        written = super().write_data(plan, planner).wait()
        files = {each.storage_data.relative_path for each in written}
        digests = {name: checkpoint.digest_of(self._folder / name) for name in files}
        future: Future[list[WriteResult]] = Future()
        future.set_result(
            [_Written(**vars(e), digest=digests[e.storage_data.relative_path]) for e in written]
        )
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        for each in (each for some in results for each in some if isinstance(each, _Written)):
            self.digests[each.storage_data.relative_path] = each.digest
        self.digests[_METADATA] = checkpoint.digest_of(self._folder / _METADATA)


def start_writing(
    folder: Path, tensors: Mapping[str, Tensor], group: "dist.ProcessGroup", *, background: bool
) -> Callable[[], dict[str, str]]:
    """Write this rank's shards; collective.

    Args:
        group: all ranks, used for nothing else: a thread uses it while training continues.
        background: return as soon as the tensors have been copied.

    Returns:
        A function that waits until all ranks have written. On the first rank it returns the SHA-256
        of each file by name, on the others nothing.

    Raises:
        StoreError: they can't be written; the returned function raises this too.
    """
    writer = _Writer(folder)
    if not background:
        with _writing(folder):
            save(dict(tensors), storage_writer=writer, process_group=group)
        return lambda: writer.digests
    future: Any = async_save(dict(tensors), storage_writer=writer, process_group=group)

    def wait() -> dict[str, str]:
        with _writing(folder):
            future.result()
        return writer.digests

    return wait


def nothing() -> dict[str, str]:
    """No digests: no shards are being written."""
    return {}


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, CheckpointException) as error:
        raise StoreError(f"{folder} can't be written: {_first(error)}") from error


def _first(error: BaseException) -> str:
    """What went wrong on the first rank that failed."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, (cause, _) = min(failures.items())
        return f"rank {rank}: {str(cause) or type(cause).__name__}"
    return str(error) or type(error).__name__
