"""Folders of each sandbox on disk."""

from pathlib import Path

from attrs import frozen

from ale_sandbox_process.records import Record


@frozen(kw_only=True)
class Folders:
    """Layout of the folder of a sandbox."""

    top: Path

    @property
    def work(self) -> Path:
        """The workspace."""
        return self.top / "work"

    @property
    def tmp(self) -> Path:
        """TMPDIR of the commands."""
        return self.top / "tmp"

    def script(self, number: int) -> Path:
        """File for a command too long for an argument, outside the workspace."""
        return self.top / f"command-{number}"

    def make(self) -> None:
        """Make them. The top folder must not be there yet.

        Raises:
            FileExistsError: it is.
        """
        for folder in (self.top, self.work, self.tmp):
            folder.mkdir(mode=0o700)


@frozen(kw_only=True)
class Workspace(Record):
    """The record of a sandbox or snapshot."""

    @property
    def folders(self) -> Folders:
        """Its folders."""
        return Folders(top=Path(self.folder))
