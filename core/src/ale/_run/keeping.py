"""Keep the states that agents leave, so that they can be graded again: ``run.keep``."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from ale._config import RunConfig
from ale._run.parts import Parts, Tasks
from ale.errors import AleError, InputError
from ale.files import write_whole
from ale.protocols import Sandbox
from ale.text import counted
from ale.types import KEPT, Task

FOLDER = KEPT
"""Folder of the run directory with a file for each kept state, which has its reference. A backend
removes a snapshot when its file is gone."""


def check_keeping(config: RunConfig, parts: Parts, tasks: Tasks) -> list[str]:
    """Notes on what a run that is to keep states can't keep.

    Raises:
        InputError: it can keep none.
    """
    if config.run.keep is None:
        return []
    if parts.executor.remote:
        message = "states are kept only of episodes that this process runs"
        raise InputError.of(message, path="run.keep", expected="executor: {type: local}")
    if not parts.sandbox.capabilities.snapshot:
        message = f"the sandbox '{parts.sandbox.name}' has no snapshots"
        raise InputError.of(message, path="run.keep", expected="a sandbox that has them")
    stepped = sum(bool(each.task.steps) for split in tasks.values() for each in split)
    if stepped:
        return [f"run.keep: states of {counted(stepped, 'task')} with steps are not kept"]
    return []


@frozen(kw_only=True)
class Keeping:
    """Keeps the state of one attempt at an episode."""

    file: Path
    only_failed: bool

    @classmethod
    def of(
        cls, keep: str | None, task: Task, run_directory: Path | None, episode: str
    ) -> "Keeping | None":
        """Whoever keeps the state; None if it is not to be kept."""
        if keep is None or task.steps or run_directory is None:
            return None
        file = run_directory.absolute() / FOLDER / episode
        return cls(file=file, only_failed=keep == "failed")

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the sandbox, by which its backend knows what is to stay."""
        return {KEPT: str(self.file)}

    async def keep(self, sandbox: Sandbox, errors: list[str]) -> str | None:
        """Keep the state; its reference, or None if the sandbox can't be read any more."""
        try:
            ref = await sandbox.snapshot()
        except AleError as error:
            errors.append(f"the state could not be kept: {error}")
            return None
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, f"{ref}\n".encode())
        return ref

    def after_success(self, ref: str | None) -> str | None:
        """The reference if such a state is wanted too; else the backend is left to remove it."""
        if not self.only_failed:
            return ref
        self.file.unlink(missing_ok=True)
        return None
