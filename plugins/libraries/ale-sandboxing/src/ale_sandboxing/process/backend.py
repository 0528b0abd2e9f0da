"""What backends of sandboxes on the host's kernel have in common: records, listing, pruning."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ale.errors import SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.protocols import Sandbox
from ale.types import Capabilities, SandboxInfo, SandboxSpec
from ale_sandboxing.process import process_tags
from ale_sandboxing.process.options import HostOptions
from ale_sandboxing.process.records import Record, Records, state_folder
from ale_sandboxing.shell.owner import Owner

RecordT = TypeVar("RecordT", bound=Record)
SandboxT = TypeVar("SandboxT", bound=Sandbox)


class HostBackend(ABC, Generic[RecordT, SandboxT]):
    """Opens, lists and prunes sandboxes, each of which has a record on disk."""

    name: str
    capabilities: Capabilities
    descriptors = 11
    """Most descriptors of this process for one sandbox: 8 for a session, 3 for another command."""
    processes = 3
    """Most processes of one sandbox that are its own: a session, and a shell with its command."""

    def __init__(
        self, options: HostOptions, context: BuildContext, record_type: type[RecordT]
    ) -> None:
        self.context = context
        self.root = options.root or Path(context.environ.get("TMPDIR") or "/tmp")  # noqa: S108
        self.state = state_folder(context.environ)
        self.records = Records(self.state, self.name, record_type)
        self._owner = Owner.me()
        self._ignore_image = options.ignore_image

    @abstractmethod
    async def make(self, spec: SandboxSpec, snapshot: str | None = None) -> SandboxT:
        """A fresh sandbox, with the files of a snapshot if one is given."""

    @abstractmethod
    async def fork(self, sandbox: SandboxT) -> SandboxT:
        """Another sandbox with the current files of this one."""

    @abstractmethod
    async def snapshot(self, sandbox: SandboxT) -> str:
        """Keep the current files; the id of the snapshot."""

    @abstractmethod
    async def remove(self, record: RecordT) -> None:
        """Remove what a sandbox or snapshot has left, and its record; its processes have ended."""

    @abstractmethod
    def detail(self, record: RecordT) -> str:
        """A few words about it for ``ale sandbox list``."""

    async def end_orphans(self, record: RecordT) -> None:
        """Kill what a dead host process left running."""
        await process_tags.end_orphans(record.tag)

    def claim(
        self,
        kind: str,
        tags: Mapping[str, str],
        make: Callable[[dict[str, Any]], RecordT],
        prepare: Callable[[RecordT], object] = lambda _: None,
    ) -> RecordT:
        """A record under a free id; see `Records.claim`.

        Args:
            make: makes it of the arguments that all records have, but for ``folder``.
        """

        def made(id: str) -> RecordT:
            return make(
                {
                    "id": id,
                    "kind": kind,
                    "owner": self._owner,
                    "created": self.context.clock(),
                    "tags": {**self.context.tags, **tags},
                }
            )

        return self.records.claim(self.context.new_id, made, prepare)

    def find_snapshot(self, ref: str) -> RecordT:
        """The record of a snapshot.

        Raises:
            SandboxError: there is none.
        """
        for record in self.records.all():
            if record.kind == "snapshot" and record.id == ref:
                return record
        raise SandboxError(f"there is no snapshot {ref!r}; its run may have been pruned")

    def restore(self, ref: str, spec: SandboxSpec) -> AbstractAsyncContextManager[SandboxT]:
        """A fresh sandbox with the files of a snapshot."""
        return self.open(spec, ref)

    @asynccontextmanager
    async def open(self, spec: SandboxSpec, snapshot: str | None = None) -> AsyncIterator[SandboxT]:
        """A fresh sandbox, with the files of a snapshot if one is given; removed on exit."""
        wanted = spec.image or spec.build
        if wanted is not None and not self._ignore_image:
            raise UnsupportedError(
                f"the task needs the image {wanted!r}; the sandbox '{self.name}' has the host's "
                "programs. Use 'docker' or 'podman', or set sandbox.ignore_image: true"
            )
        sandbox = await self.make(spec, snapshot)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox and snapshot of this user, of live runs and of dead ones."""
        return [self._info(record) for record in await asyncio.to_thread(self.records.all)]

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what belongs to host processes that have ended.

        Raises:
            SandboxError: something could not be removed; all the rest is.
        """
        removed = []
        await asyncio.to_thread(self.records.sweep)
        records, errors = await asyncio.to_thread(self.records.readable)
        for record in records:
            if record.needed:
                continue
            try:
                await self.end_orphans(record)
                await self.remove(record)
            except SandboxError as error:
                errors.append(f"{record.kind} {record.id}: {error}")
            else:
                removed.append(self._info(record))
        if errors:
            raise SandboxError("; ".join(errors))
        return removed

    def _info(self, record: RecordT) -> SandboxInfo:
        return record.info(self.name, self.context.clock(), self.detail(record))

    async def aclose(self) -> None:
        """Nothing is open between sandboxes."""
