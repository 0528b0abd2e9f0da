"""Folders of each sandbox on disk."""

from pathlib import Path

from attrs import frozen

from ale_sandboxing.process.records import Record


@frozen(kw_only=True)
class Workspace(Record):
    """The record of a sandbox or snapshot, and its folders."""

    @property
    def top(self) -> Path:
        """Everything of it is in here."""
        return Path(self.folder)

    @property
    def work(self) -> Path:
        """The workspace."""
        return self.top / "work"

    @property
    def tmp(self) -> Path:
        """TMPDIR of the commands."""
        return self.top / "tmp"

    def make(self) -> None:
        """Make the folders. The top one must not be there yet.

        Raises:
            FileExistsError: it is.
        """
        for folder in (self.top, self.work, self.tmp):
            folder.mkdir(mode=0o700)
