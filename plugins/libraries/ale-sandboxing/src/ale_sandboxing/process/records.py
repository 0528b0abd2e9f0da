"""Records on disk of every open sandbox, so that `prune` can clean up after a killed run."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from attrs import asdict, frozen

from ale.errors import SandboxError
from ale.files import remove_partial, replacing
from ale_sandboxing.process.claims import claim, private, sweep
from ale_sandboxing.process.process_tags import ProcessTag
from ale_sandboxing.shell.owner import OwnedRecord

_TRIES = 100


@frozen(kw_only=True)
class Record(OwnedRecord):
    """One sandbox or snapshot; so says its `kind`."""

    folder: str

    @property
    def tag(self) -> ProcessTag:
        """The tag of its processes."""
        return ProcessTag.of(self.folder, self.id)


RecordT = TypeVar("RecordT", bound=Record)


class Records(Generic[RecordT]):
    """A file per record, in a folder of one backend.

    Args:
        base: the state folder of all backends.
        name: the backend.
        type: what its records are.
    """

    def __init__(self, base: Path, name: str, type: type[RecordT]) -> None:
        self._base = base
        self._type = type
        self.folder = base / name

    def _path(self, record: RecordT) -> Path:
        return self.folder / f"{record.tag.token:08x}.json"

    def add(self, record: RecordT) -> bool:
        """Write a record; False when its tag is taken."""
        private(self._base)
        private(self.folder)
        return claim(self._path(record), _text(record))

    def sweep(self) -> None:
        """Remove empty records of processes that were killed while they wrote them."""
        sweep(self.folder)

    def claim(
        self,
        new_id: Callable[[], str],
        make: Callable[[str], RecordT],
        prepare: Callable[[RecordT], object] = lambda _: None,
    ) -> RecordT:
        """Write a record under a free id.

        It is written before what it describes, so that a crash at any moment leaves nothing that
        `prune` can't find.

        Args:
            make: the record for an id.
            prepare: creates what it describes; on FileExistsError another id is tried.

        Raises:
            SandboxError: no id is free.
        """
        for _ in range(_TRIES):
            record = make(new_id())
            if not self.add(record):
                continue
            try:
                prepare(record)
            except FileExistsError:
                self.drop(record)
            else:
                return record
        raise SandboxError(f"{_TRIES} ids in a row are taken in {self.folder}")

    def replace(self, record: RecordT) -> None:
        """Replace a record atomically."""
        with replacing(self._path(record)) as partial:
            partial.write_bytes(_text(record))

    def drop(self, record: RecordT) -> None:
        """Forget it."""
        path = self._path(record)
        path.unlink(missing_ok=True)
        # Left by a process that was killed while it replaced its record.
        remove_partial(path, record.owner.pid)

    def all(self) -> list[RecordT]:
        """Every record, by id.

        Raises:
            SandboxError: a record can't be read; the error names the file, which is left in place.
        """
        found, unread = self.readable()
        if unread:
            raise SandboxError("; ".join(unread))
        return found

    def readable(self) -> tuple[list[RecordT], list[str]]:
        """Every record that can be read, by id, and what is wrong with each of the others."""
        found: list[RecordT] = []
        unread: list[str] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                text = path.read_text(encoding="utf-8")
                if text:  # else it is being written, or its writer was killed (`sweep`)
                    found.append(self._type.of(json.loads(text)))
            except FileNotFoundError:
                continue  # closed concurrently
            except (ValueError, TypeError, KeyError) as error:
                unread.append(f"{path} is not a record of a sandbox: {error}")
        return sorted(found, key=lambda record: record.id), unread


def _text(record: Record) -> bytes:
    return json.dumps(asdict(record)).encode()


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's records are.

    Independent of TMPDIR: `prune` must find what another shell has started.
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "ale" if runtime else Path(f"/tmp/ale-{os.geteuid()}")  # noqa: S108
