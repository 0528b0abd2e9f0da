"""One local sandbox: a folder, and a tag on every process."""

import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ale.errors import SandboxDamagedError, SandboxError
from ale.types import SandboxSpec
from ale.workspaces import Area, FolderFiles
from ale_sandbox_local.folders import Workspace
from ale_sandbox_local.limits import BASH, Dialect
from ale_sandbox_local.pipes import LocalPipes
from ale_sandboxing.process import process_tags
from ale_sandboxing.process.backend import HostBackend
from ale_sandboxing.process.sandbox import HostSandbox, Launch, NotStartedError
from ale_sandboxing.process.spawn import Child
from ale_sandboxing.process.trees import remove_all

SHELL = "/bin/sh"


class LocalSandbox(HostSandbox[Child]):
    """Runs commands on the host.

    Args:
        limits: ``ulimit`` commands for a shell's dialect.
        dialect: of ``/bin/sh``.
        bash: its path; sessions fall back to ``/bin/sh``.
    """

    def __init__(
        self,
        backend: HostBackend[Any, Any],
        record: Workspace,
        spec: SandboxSpec,
        *,
        limits: Callable[[Dialect], str],
        dialect: Dialect,
        bash: str | None,
    ) -> None:
        self.record = record
        self.spec = spec
        self._limits = {False: limits(dialect), True: limits(BASH)}
        self._bash_path = bash
        self._idle_up_to = 0
        """Nothing runs any more of the commands up to this one."""
        self._children: set[Child] = set()
        self._moving = FolderFiles(Area(record.work, record.tmp))
        super().__init__(
            backend,
            record,
            str(record.work),
            files=self._moving,
            pipes=LocalPipes(record.top),
            env={"HOME": str(record.work), "TMPDIR": str(record.tmp), **spec.env},
            bash=bash is not None,
        )

    def limits(self, number: int, *, bash: bool) -> str:
        """Limits of each process, and the sandbox's tag."""
        return self._limits[bash] + self._tag.script(number)

    def launch(self, launch: Launch) -> Child:
        """Start a process on the host."""
        cwd, note = str(self.record.work / (launch.cwd or "")), ""
        if launch.elsewhere and not os.access(cwd, os.X_OK):
            cwd, note = self._elsewhere(cwd)
        stdin, stdout, stderr = launch.files
        try:
            child = Child(
                launch.argv,
                executable=(self._bash_path if launch.bash else None) or SHELL,
                env=launch.env,
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                note=note,
            )
        except OSError as error:
            if error.filename == cwd:
                raise NotStartedError(f"can't enter {cwd}: {error.strerror}") from error
            if error.errno == errno.E2BIG:
                raise NotStartedError(error.strerror) from error
            raise SandboxError(f"could not start a process: {error}") from error
        self._tag.apply(child.pid, launch.number)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))
        return child

    def _elsewhere(self, cwd: str) -> tuple[str, str]:
        """Another folder of the sandbox than one that is gone, and what a shell there says."""
        for folder in (self.record.tmp, self.record.top):
            if os.access(folder, os.X_OK):
                return str(folder), f"can't enter {cwd} any more; this shell is in {folder}\n"
        raise SandboxDamagedError(f"the folder of sandbox {self.id} is gone: {self.record.top}")

    def kill_command(self, number: int, running: Child) -> None:
        """Kill a command and what it has started."""
        running.kill()
        super().kill_command(number, running)

    async def end_command(self, number: int, running: Child) -> None:
        """Kill a command and what it has started, and wait."""
        if self._idle_up_to < number - 1 or number < self._commands:
            await process_tags.end(self._tag, number, children=[running])
        else:  # it is the only one: one scan for it and for all
            await self._end_all()

    async def end_processes(self) -> int:
        """Kill every process of the sandbox, sessions included; the number killed."""
        self.check_open()
        return await self._end_all()

    async def _end_all(self) -> int:
        if self._idle_up_to == self._commands:
            return 0
        killed = await process_tags.end(self._tag, children=self._children)
        self._idle_up_to = self._commands  # nothing was started since that scan
        return killed

    @asynccontextmanager
    async def scratch_folder(self, name: str) -> AsyncIterator[str]:
        """A new folder. See `ale.protocols.MakesScratchFolders`."""
        self.check_open()
        folder = self.record.tmp / name
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            kind = SandboxError if self.record.tmp.is_dir() else SandboxDamagedError
            raise kind(f"could not make a folder for grading: {error}") from error
        try:
            yield str(folder)
        finally:
            if not self.closed:  # else it goes with all the others
                await remove_all([folder])

    async def release(self) -> None:
        """Kill what runs and remove the folder and the record."""
        await self._moving.ended()
        try:
            await self._end_all()
        finally:
            self.drains.close()
            await self._backend.remove(self.record)
