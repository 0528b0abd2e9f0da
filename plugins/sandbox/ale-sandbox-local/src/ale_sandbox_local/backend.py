"""Opens, lists and prunes local sandboxes."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from ale.errors import SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.types import SandboxInfo, SandboxSpec
from ale_sandbox_local.capabilities import capabilities_of
from ale_sandbox_local.files import copy
from ale_sandbox_local.folders import Folders, Workspace
from ale_sandbox_local.limits import check, facts_of, rlimits, tasks_now
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.sandbox import PATH, SHELL, LocalSandbox, Setup
from ale_sandbox_process import process_tags
from ale_sandbox_process.claims import private
from ale_sandbox_process.records import Records, state_folder
from ale_sandbox_process.trees import remove, remove_small
from ale_sandbox_shell.owner import Owner


class LocalBackend:
    """Sandboxes on the host itself."""

    name = "local"

    def __init__(self, options: LocalOptions, context: BuildContext) -> None:
        self._options = options
        self._context = context
        self._facts = facts_of(SHELL)
        self.capabilities = capabilities_of(self._facts)
        uid = os.geteuid()
        environ = context.environ
        self._records = Records(state_folder(environ), "local", Workspace)
        root = options.root or Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108
        self._root = root / f"ale-{uid}"
        self._bash = shutil.which("bash", path=PATH)
        self._checked = False
        self._owner = Owner.me()
        # Added to what runs now: the kernel counts all processes of a user together.
        self._processes = tasks_now() + (options.processes or 0)

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[LocalSandbox]:
        """A fresh workspace, removed on exit."""
        sandbox = self._make(spec)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    @contextlib.asynccontextmanager
    async def restore(self, ref: str, spec: SandboxSpec) -> AsyncIterator[LocalSandbox]:
        """A fresh workspace with the files of a snapshot."""
        snapshots = [r for r in self._records.all() if r.kind == "snapshot" and r.id == ref]
        if not snapshots:
            raise SandboxError(f"there is no snapshot {ref!r}; its run may have been pruned")
        async with self.open(spec) as sandbox:
            await _copy_files(snapshots[0].folders, sandbox.folders)
            yield sandbox

    def _make(self, spec: SandboxSpec) -> LocalSandbox:
        wanted = spec.image or spec.build
        if wanted is not None and not self._options.ignore_image:
            raise UnsupportedError(
                f"the task needs the image {wanted!r}; the sandbox 'local' runs on the host. "
                "Use 'docker', or set sandbox.ignore_image: true"
            )
        limits = rlimits(self._options, memory_mb=spec.memory_mb, processes=self._processes)
        if not self._checked:
            check(limits.script(self._facts.dialect))
            self._checked = True
        record = self._claim("sandbox", {**self._context.tags, **spec.tags})
        setup = Setup(
            record=record,
            capabilities=self.capabilities,
            env=spec.env,
            limits=limits.script,
            dialect=self._facts.dialect,
            bash=self._bash,
            monotonic=self._context.monotonic,
            fork=lambda sandbox: self._fork(sandbox, spec),
            snapshot=self._snapshot,
            release=self._release,
        )
        return LocalSandbox(setup)

    def _claim(self, kind: str, tags: Mapping[str, str]) -> Workspace:
        """A folder and a record under a free id."""
        private(self._root)

        def make(id: str) -> Workspace:
            return Workspace(
                id=id,
                kind=kind,
                folder=str(self._root / id),
                owner=self._owner,
                created=self._context.clock(),
                tags=tags,
            )

        return self._records.claim(self._context.new_id, make, lambda made: made.folders.make())

    async def _fork(self, sandbox: LocalSandbox, spec: SandboxSpec) -> LocalSandbox:
        twin = self._make(spec)
        try:
            await _copy_files(sandbox.folders, twin.folders)
        except BaseException:
            await twin.close()
            raise
        return twin

    async def _snapshot(self, sandbox: LocalSandbox) -> str:
        record = self._claim("snapshot", sandbox.record.tags)
        try:
            await _copy_files(sandbox.folders, record.folders)
        except BaseException:
            await self._release(record)
            raise
        return record.id

    async def _release(self, record: Workspace) -> None:
        if not remove_small(record.folders.top):
            await asyncio.to_thread(remove, record.folders.top)
        self._records.drop(record)

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox and snapshot of this user, of live runs and of dead ones."""
        return [self._info(record) for record in await asyncio.to_thread(self._records.all)]

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what belongs to host processes that have ended."""
        removed = []
        await asyncio.to_thread(self._records.sweep)
        for record in await asyncio.to_thread(self._records.all):
            if not record.owner.alive:
                await process_tags.end_orphans(record.tag)
                await self._release(record)
                removed.append(self._info(record))
        return removed

    def _info(self, record: Workspace) -> SandboxInfo:
        detail = f"{record.kind} {record.folder}"
        return record.info(self.name, self._context.clock(), detail)

    async def aclose(self) -> None:
        """Nothing is open between sandboxes."""


async def _copy_files(source: Folders, target: Folders) -> None:
    def copy_all() -> None:
        for name in ("work", "tmp"):
            copy(source.top / name, target.top / name, moved=(source.top, target.top))

    await asyncio.to_thread(copy_all)
