"""Opens local sandboxes, and copies them."""

import asyncio
import os
import shutil
from collections.abc import Mapping

from ale.errors import SandboxError
from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale.workspaces import copy_workspace
from ale_sandbox_local.capabilities import capabilities_of
from ale_sandbox_local.folders import Workspace
from ale_sandbox_local.limits import Dialect, check, facts_of, script, tasks_now
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.sandbox import SHELL, LocalSandbox
from ale_sandboxing.process.backend import HostBackend
from ale_sandboxing.process.claims import private
from ale_sandboxing.process.sandbox import PATH
from ale_sandboxing.process.trees import remove_all


class LocalBackend(HostBackend[Workspace, LocalSandbox]):
    """Sandboxes on the host itself."""

    name = "local"

    def __init__(self, options: LocalOptions, context: BuildContext) -> None:
        super().__init__(options, context, Workspace)
        self._options = options
        self._facts = facts_of(SHELL)
        self.capabilities = capabilities_of(self._facts)
        self._folder = self.root / f"ale-{os.geteuid()}"
        self._bash = shutil.which("bash", path=PATH)
        self._checked = False
        # Added to what runs now: the kernel counts all processes of a user together.
        self._processes = tasks_now() + (options.processes or 0)

    async def make(self, spec: SandboxSpec, snapshot: str | None = None) -> LocalSandbox:
        """A fresh workspace."""
        source = None if snapshot is None else self.find_snapshot(snapshot)
        return await self._make(spec, source)

    async def _make(self, spec: SandboxSpec, source: Workspace | None) -> LocalSandbox:
        dialect = self._facts.dialect

        def limits(of: Dialect) -> str:
            return script(self._options, of, spec.memory_mb, self._processes)

        if not self._checked:
            check(limits(dialect))
            self._checked = True
        record = self._claim("sandbox", spec.tags)
        sandbox = LocalSandbox(self, record, spec, limits=limits, dialect=dialect, bash=self._bash)
        if source is not None:
            try:
                await _copy_files(source, record)
            except BaseException:
                await sandbox.close()
                raise
        return sandbox

    def _claim(self, kind: str, tags: Mapping[str, str]) -> Workspace:
        """A record and folders under a free id."""
        private(self._folder)
        return self.claim(
            kind,
            tags,
            lambda given: Workspace(folder=str(self._folder / given["id"]), **given),
            Workspace.make,
        )

    async def fork(self, sandbox: LocalSandbox) -> LocalSandbox:
        """A copy of the files in a sandbox of its own."""
        return await self._make(sandbox.spec, sandbox.record)

    async def snapshot(self, sandbox: LocalSandbox) -> str:
        """Keep a copy of the files."""
        record = self._claim("snapshot", sandbox.record.tags)
        try:
            await _copy_files(sandbox.record, record)
        except BaseException:
            await self.remove(record)
            raise
        return record.id

    async def remove(self, record: Workspace) -> None:
        """Remove the folders and the record."""
        await remove_all([record.top], then=lambda: self.records.drop(record))

    def detail(self, record: Workspace) -> str:
        """Where it is."""
        return f"{record.kind} {record.folder}"


async def _copy_files(source: Workspace, target: Workspace) -> None:
    def copy_all() -> None:
        for name in ("work", "tmp"):
            copy_workspace(source.top / name, target.top / name, (source.top, target.top))

    try:
        await asyncio.to_thread(copy_all)
    except OSError as error:
        raise SandboxError(f"the files of sandbox {source.id} can't be copied: {error}") from error
