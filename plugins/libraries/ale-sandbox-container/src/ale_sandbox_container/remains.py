"""What sandboxes leave on engine and host: listed, removed, and removed again where it failed."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale.types import SandboxInfo
from ale_sandbox_container.engine import ConflictError, Engine
from ale_sandbox_container.plan import container_name
from ale_sandbox_container.records import LABEL, Folders, Record, parse

_LOG = logging.getLogger(__name__)


@frozen
class Trace:
    """One thing that a sandbox has on engine or host."""

    record: Record
    what: str
    """``container``, ``image`` or ``folder``."""
    handle: str
    """By which it is removed."""


class Remains:
    """Knows what is there. Its methods block."""

    def __init__(self, engine: Engine, folders: Folders, *, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._folders = folders
        self._clock = clock
        self._leaving: set[str] = set()
        self._failed: dict[str, tuple[Record, str | None]] = {}

    def leaving(self, id: str) -> None:
        """This sandbox is closed, and is being removed."""
        self._leaving.add(id)

    def clear(self, record: Record, image: str | None) -> None:
        """Remove a closed sandbox. What fails is tried again by `retry`, and listed until then."""
        id, container = record.id, container_name(record.id)
        try:
            self._engine.remove(container)
            if record.stack:
                self._engine.clear(container)
            if image is not None:
                self._engine.remove_image(image)
            self._folders.drop(id)
        except (SandboxError, OSError) as error:
            _LOG.warning("%s: sandbox %s could not be removed: %s", self._engine.name, id, error)
            self._failed[id] = (record, image)
        else:
            self._failed.pop(id, None)
        self._leaving.discard(id)

    def retry(self) -> None:
        """Try again what could not be removed.

        Raises:
            SandboxError: it still can't be.
        """
        for record, image in list(self._failed.values()):
            self.clear(record, image)
        if self._failed:
            names = ", ".join(map(container_name, self._failed))
            raise SandboxError(f"{self._engine.name} could not remove: {names}")

    def _traces(self) -> Iterator[Trace]:
        for found in self._engine.containers(LABEL):
            record = parse(found.labels[LABEL], f"container {found.id}")
            yield Trace(record, "container", container_name(record.id))
        for found in self._engine.images(LABEL):
            record = parse(found.labels[LABEL], f"image {found.id}")
            yield Trace(record, "image", found.id)
        for record in self._folders.all():
            yield Trace(record, "folder", str(self._folders.door(record.id)))

    def list(self) -> Sequence[SandboxInfo]:
        """Sandboxes and snapshots, and of dead owners whatever is left."""
        shown: dict[str, SandboxInfo] = {}
        # What is on its way out now may be gone when the engine's answer comes.
        closed = self._leaving.copy()
        for trace in self._traces():
            id = trace.record.id
            passing = trace.what == "folder" or trace.record.kind == "fork"
            leaving = id in self._leaving or (id in closed and id not in self._failed)
            if leaving or id in shown or (passing and trace.record.owner.alive):
                continue
            shown[id] = self._info(trace)
        return list(shown.values())

    def prune(self) -> Sequence[SandboxInfo]:
        """Remove whatever belongs to host processes that are gone.

        Raises:
            SandboxError: some of it could not be removed, and which; the rest has been.
        """
        removed: dict[str, SandboxInfo] = {}
        failed = []
        self._folders.sweep()
        for trace in sorted(self._traces(), key=_order):
            if trace.record.owner.alive:
                continue
            try:
                gone = self._remove(trace)
            except (SandboxError, OSError) as error:
                failed.append(f"{trace.what} {trace.handle}: {error}")
                continue
            if gone:
                removed.setdefault(trace.record.id, self._info(trace))
        if failed:
            raise SandboxError(f"{self._engine.name} could not remove:\n  " + "\n  ".join(failed))
        return list(removed.values())

    def _remove(self, trace: Trace) -> bool:
        if trace.what == "container":
            self._engine.remove(trace.handle)
        elif trace.what == "image":
            try:
                self._engine.remove_image(trace.handle)
            except ConflictError as error:
                # A sandbox that lives was forked from it; it goes when that is pruned.
                _LOG.info("%s: %s stays: %s", self._engine.name, trace.handle, error)
                return False
        if trace.record.stack:
            self._engine.clear(container_name(trace.record.id))
        Folders(Path(trace.record.root)).drop(trace.record.id)
        return True

    def _info(self, trace: Trace) -> SandboxInfo:
        record = trace.record
        return SandboxInfo(
            id=record.id,
            backend=self._engine.name,
            tags=record.tags,
            owner_alive=record.owner.alive,
            age_s=max(0.0, self._clock() - record.created),
            detail=f"{record.kind} {trace.what} {trace.handle}",
        )


def _order(trace: Trace) -> tuple[int, float]:
    """Containers before the images that they use, and images before those they were made from."""
    return ("container", "image", "folder").index(trace.what), -trace.record.created
