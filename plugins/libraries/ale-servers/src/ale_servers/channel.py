"""The weight channel `folder`: one folder per version on a disk that trainer and servers share.

A version is written beside its final place, synchronised to the disk, and renamed. Its marker,
written last, lists the files with their sizes, so an incomplete folder is not read, whatever the
file system makes of the rename.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from attrs import field, frozen

from ale.errors import LLMError
from ale.files import replacing
from ale_servers.broadcast import OtherWeightsError, Reader
from ale_servers.protocol import WeightsError
from ale_servers.records import Broadcast, Memory, Weights

MARKER = "weights.json"


class Marker(msgspec.Struct, forbid_unknown_fields=True):
    """What the file `MARKER` of a version says."""

    version: int
    digest: str
    files: dict[str, int]
    """Sizes in bytes by file name."""


@frozen
class WeightFolder:
    """The versions of one run."""

    root: Path
    """Folder of the versions; created if missing."""
    _keep: int = field(default=2, kw_only=True)
    """Number of versions to keep; older ones are removed when a new one is published."""
    _sync: bool = field(default=True, kw_only=True)
    """Have a version on the disk before it has its name, for other machines that read it."""

    def publish(self, version: int, write: Callable[[Path], str]) -> Weights:
        """Write a version; an existing one is replaced.

        Args:
            write: writes ``*.safetensors`` into an empty folder and returns the digest.

        Raises:
            OSError: the folder can't be written.
        """
        folder = (self.root / f"v{version:08d}").absolute()
        with replacing(folder, folder=True, sync=self._sync) as partial:
            digest = write(partial)
            sizes = {file.name: file.stat().st_size for file in sorted(partial.iterdir())}
            marker = Marker(version, digest, sizes)
            (partial / MARKER).write_bytes(msgspec.json.encode(marker))
        others = [each for each in self._versions() if each != folder]
        older = sorted(others, key=lambda each: int(each.name[1:]))
        for each in older[: len(older) + 1 - self._keep]:
            shutil.rmtree(each, ignore_errors=True)
        return Weights(version=version, digest=digest, folder=str(folder))

    def remove(self) -> None:
        """Remove all versions."""
        for folder in self._versions():
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # it may contain somebody else's files
            self.root.rmdir()

    def _versions(self) -> list[Path]:
        """The folders with a marker: others with such a name are somebody else's."""
        named = [each for each in self.root.glob("v*") if re.fullmatch(r"v\d{8,}", each.name)]
        return [each for each in named if (each / MARKER).is_file()]


def files_of(weights: Weights) -> list[Path]:
    """The files of published weights.

    Raises:
        WeightsError: the folder is missing or incomplete, or has another version.
    """
    folder = Path(weights.folder)
    try:
        marker = msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
        found = {name: (folder / name).stat().st_size for name in marker.files}
    except (OSError, msgspec.DecodeError) as error:
        message = f"{folder} holds no published weights: {error}"
        if isinstance(error, FileNotFoundError) and weights.origin is None:
            message += (
                "; if the trainer does not share this folder with the server's machine, set "
                "'weights_address' in its 'llm: {type: servers}'"
            )
        raise WeightsError(message) from error
    if (marker.version, marker.digest) != (weights.version, weights.digest):
        raise WeightsError(
            f"{folder} has version {marker.version} with digest {marker.digest[:12]}; expected "
            f"version {weights.version} with digest {weights.digest[:12]}"
        )
    if found != marker.files:
        raise WeightsError(f"{folder} is not whole: expected {marker.files}, found {found} bytes")
    return [folder / name for name in marker.files]


def this_machine() -> str:
    """Id of this machine since its last start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def check_memory(weights: Weights, memory: Memory) -> None:
    """Can this machine have weights in memory? What a GPU's memory holds is seen by its reader.

    Raises:
        WeightsError: they are on another machine, or this process can't read the file.
    """
    if memory.machine != this_machine():
        raise WeightsError(
            "the weights are in the memory of another machine; set 'weights_channel: folder' in "
            "the trainer's 'llm: {type: servers}'"
        )
    if memory.file:
        try:
            with Path(memory.file).open("rb") as file:
                found = file.read(len(weights.digest)).decode()
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise WeightsError(
                f"the shared memory can't be read: {error}; if the server has another /dev/shm "
                "than the trainer, as in a container, or another user, set 'weights_channel: "
                "folder' in the trainer's 'llm: {type: servers}'"
            ) from error
        if size != memory.size:
            raise WeightsError(f"{memory.file} has {size} bytes; expected {memory.size}")
        if found != weights.digest:
            raise WeightsError(
                f"{memory.file} holds the weights {found.strip()[:12] or 'of no version'}; "
                f"expected {weights.digest[:12]}"
            )


def check_broadcast(weights: Weights, broadcast: Broadcast) -> None:
    """Does the trainer send these weights?

    Raises:
        WeightsError: it does not.
        LLMError: it can't be reached.
    """
    with contextlib.closing(Reader(msgspec.to_builtins(broadcast))) as reader, refusals():
        reader.ask("check", weights.digest)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """The errors of a `Reader` as those of a server."""
    try:
        yield
    except OtherWeightsError as error:
        raise WeightsError(str(error)) from error
    except OSError as error:
        raise LLMError(str(error), transient=True) from error
