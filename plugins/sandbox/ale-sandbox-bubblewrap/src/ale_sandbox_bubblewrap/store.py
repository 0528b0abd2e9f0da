"""Folders and records of a user's sandboxes: which layer is used by whom."""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import evolve, field, frozen

from ale_sandbox_bubblewrap import process_lock
from ale_sandbox_bubblewrap.layers import LAYERS
from ale_sandboxing.process.claims import private
from ale_sandboxing.process.records import Record, Records
from ale_sandboxing.process.trees import remove_all
from ale_sandboxing.shell.owner import Owner


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


@frozen(kw_only=True)
class BubblewrapRecord(Record):
    """The record of a sandbox or snapshot; `folder` is only a name."""

    layers: tuple[str, ...] = field(converter=_texts)
    """The topmost first. A sandbox writes to it; a snapshot's stay as they are."""
    groups: tuple[str, ...] = field(default=(), converter=_texts)
    """Its control groups."""

    def layer(self, name: str) -> Path:
        """The folder of a layer in its store."""
        return Path(self.folder).parent / LAYERS / name


class Store:
    """The folder ``ale-bubblewrap-<uid>`` and the records about what is in it.

    Args:
        root: where to make the folder.
        records: of all sandboxes of this user's backends of this kind.
        uid: the host's user that sandboxes have.
    """

    def __init__(self, root: Path, records: Records[BubblewrapRecord], uid: int) -> None:
        self.folder = root / f"ale-bubblewrap-{os.geteuid()}"
        self.records = records
        self._uid = uid
        self._owner = Owner.me()
        self._in_use: int | None = None
        self._lock_fd: int | None = None
        self._shared: set[str] = set()

    def open(self) -> None:
        """Make the folders, and lock them against `tidy` of other processes.

        Raises:
            SandboxError: another user owns them.
        """
        while self._in_use is None:
            private(self.folder)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):  # another process has just tidied up
                if (self.folder / "lock").stat().st_ino == os.fstat(descriptor).st_ino:
                    self._in_use = descriptor
                    break
            os.close(descriptor)
        layers = self.folder / LAYERS
        layers.mkdir(mode=0o700, exist_ok=True)
        self.give(layers)
        self.owners.mkdir(mode=0o700, exist_ok=True)
        if self._lock_fd is None:
            self._lock_fd = process_lock.acquire(self.owners, self._owner)

    @property
    def owners(self) -> Path:
        """The folder of the host processes' locks; see `process_lock`."""
        return self.folder / "owners"

    @property
    def lock_fd(self) -> int:
        """Descriptor of the lock that is held while any process has it open."""
        assert self._lock_fd is not None, "the store is open"
        return self._lock_fd

    def close(self) -> None:
        """Release the folders, and remove them if they are empty. May be called again."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None
            process_lock.is_released(self.owners, self._owner)
        if self._in_use is not None:
            os.close(self._in_use)
            self._in_use = None
            self.tidy()

    def tidy(self) -> None:
        """Remove the folders if nothing is in them and no process has them in use."""
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not any((self.folder / LAYERS).iterdir()):
                    shutil.rmtree(self.folder)
            finally:
                os.close(descriptor)

    def give(self, path: Path) -> None:
        """Give a file or folder to the sandboxes' user."""
        if self._uid != os.geteuid():
            os.chown(path, self._uid, self._uid)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock against other processes that change which layers are used."""
        private(self.records.folder.parent)
        private(self.records.folder)
        path = self.records.folder / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def upper(self, layer: str) -> Path:
        """What is written to in a layer on disk."""
        return self.folder / LAYERS / layer / "up"

    def make_layer(self, name: str, trees: Iterable[str]) -> None:
        """Make the folders of a layer that no sandbox has mounted yet."""
        upper = self.upper(name)
        for folder in (upper.parent, upper, *(upper / tree for tree in trees)):
            folder.mkdir(mode=0o755)
            self.give(folder)

    def share(self, layers: Iterable[str]) -> None:
        """Mark layers as possibly used by more than one record."""
        self._shared.update(layers)

    def unshare_layers(
        self, box: BubblewrapRecord, layers: Iterable[str]
    ) -> tuple[BubblewrapRecord, list[Path]]:
        """Take layers out of a record.

        Returns:
            The record, still with the layers that no other record has, and their folders, which the
            caller removes. They stay recorded until then.
        """
        mine = set(layers)
        if mine & self._shared or box.owner != self._owner:
            with self.exclusive():
                others = {name for r in self.records.all() if r.id != box.id for name in r.layers}
                box = evolve(box, layers=[name for name in box.layers if name not in mine & others])
                self.records.replace(box)
            mine -= others
        return box, [box.layer(name) for name in mine]

    async def release(self, box: BubblewrapRecord) -> None:
        """Remove the layers that only this record has, and the record.

        Raises:
            SandboxError: something could not be removed.
        """
        box, folders = self.unshare_layers(box, box.layers)
        await remove_all(folders)
        self.records.drop(box)

    async def forget(self, box: BubblewrapRecord, layers: Iterable[str]) -> BubblewrapRecord:
        """Remove layers that a sandbox does not use any more; the record without them."""
        gone = set(layers)
        box, folders = self.unshare_layers(box, gone)
        await remove_all(folders)
        box = evolve(box, layers=[name for name in box.layers if name not in gone])
        self.records.replace(box)
        return box


def new_name() -> str:
    """Name of a new layer; not the sandbox's id, because a layer may outlive its sandbox."""
    return secrets.token_hex(6)


def is_empty(upper: Path) -> bool:
    """Nothing has been written to a layer."""
    return not any(any(tree.iterdir()) for tree in upper.iterdir())
