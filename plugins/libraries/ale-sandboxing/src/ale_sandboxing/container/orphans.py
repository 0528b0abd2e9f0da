"""Containers, images and volumes of sandboxes: list them, remove orphans, retry failed removals."""

import logging
from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from ale.errors import SandboxError
from ale.types import SandboxInfo
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.engine import ConflictError
from ale_sandboxing.container.plan import container_name
from ale_sandboxing.container.records import LABEL, Record, parse

_LOG = logging.getLogger(__name__)
_KINDS = ("container", "image", "volume")


@frozen
class Leftover:
    """A container, image or volume that belongs to a sandbox."""

    record: Record
    what: str
    """One of `_KINDS`."""
    handle: str
    """Name or id."""


class Orphans:
    """Lists and removes what sandboxes left. Its methods block."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._leaving: set[str] = set()
        self._failed: dict[str, tuple[Record, str | None]] = {}

    def leaving(self, id: str) -> None:
        """Mark a sandbox as closed and being removed."""
        self._leaving.add(id)

    def clear(self, record: Record, image: str | None) -> None:
        """Remove a closed sandbox. What fails is tried again by `retry`, and listed until then."""
        if (error := self._cleared(record, image)) is not None:
            name = self._engine.name
            _LOG.warning("%s: sandbox %s could not be removed: %s", name, record.id, error)

    def _cleared(self, record: Record, image: str | None) -> SandboxError | None:
        """Remove it; why that failed."""
        id, container = record.id, container_name(record.id)
        try:
            self._engine.remove(container)
            if record.stack:
                self._engine.clear(container)
            if image is not None:
                self._engine.remove_image(image)
        except SandboxError as error:
            self._failed[id] = (record, image)
            return error
        else:
            self._failed.pop(id, None)
            return None
        finally:
            self._leaving.discard(id)

    def retry(self) -> None:
        """Try again what could not be removed.

        Raises:
            SandboxError: it still can't be.
        """
        why = None
        for record, image in list(self._failed.values()):
            why = self._cleared(record, image) or why
        if self._failed:
            names = ", ".join(map(container_name, self._failed))
            raise SandboxError(f"{self._engine.name} could not remove: {names} ({why})")

    def _leftovers(self) -> Iterator[Leftover]:
        engine = self._engine
        for what, those_with in zip(
            _KINDS, (engine.containers, engine.images, engine.volumes), strict=True
        ):
            for found in those_with(LABEL):
                yield Leftover(parse(found.labels[LABEL], f"{what} {found.id}"), what, found.id)

    def list(self) -> Sequence[SandboxInfo]:
        """Sandboxes and snapshots, and whatever dead owners left."""
        shown: dict[str, SandboxInfo] = {}
        # What is on its way out now may be gone when the engine's answer comes.
        closed = self._leaving.copy()
        for leftover in self._leftovers():
            id = leftover.record.id
            passing = leftover.record.kind in ("fork", "shell")
            leaving = id in self._leaving or (id in closed and id not in self._failed)
            if leaving or id in shown or (passing and leftover.record.owner.alive):
                continue
            shown[id] = self._info(leftover)
        return list(shown.values())

    def prune(self) -> Sequence[SandboxInfo]:
        """Remove whatever belongs to host processes that are gone.

        Raises:
            SandboxError: some of it could not be removed, and which; the rest has been.
        """
        removed: dict[str, SandboxInfo] = {}
        failed = []
        for leftover in sorted(self._leftovers(), key=_order):
            if leftover.record.needed:
                continue
            try:
                gone = self._remove(leftover)
            except SandboxError as error:
                failed.append(f"{leftover.what} {leftover.handle}: {error}")
                continue
            if gone:
                removed.setdefault(leftover.record.id, self._info(leftover))
        if failed:
            raise SandboxError(f"{self._engine.name} could not remove:\n  " + "\n  ".join(failed))
        return list(removed.values())

    def _remove(self, leftover: Leftover) -> bool:
        if leftover.what == "container":
            self._engine.remove(leftover.handle)
            if leftover.record.stack:
                self._engine.clear(container_name(leftover.record.id))
            return True
        what = self._engine.remove_image if leftover.what == "image" else self._engine.remove_volume
        try:
            what(leftover.handle)
        except ConflictError as error:
            # A sandbox that lives was forked from it; it goes when that is pruned.
            _LOG.info("%s: %s stays: %s", self._engine.name, leftover.handle, error)
            return False
        return True

    def _info(self, leftover: Leftover) -> SandboxInfo:
        detail = f"{leftover.record.kind} {leftover.what} {leftover.handle}"
        return leftover.record.info(self._engine.name, self._clock(), detail)


def _order(leftover: Leftover) -> tuple[int, float]:
    """Containers before the images that they use, and images before those they were made from."""
    return _KINDS.index(leftover.what), -leftover.record.created
