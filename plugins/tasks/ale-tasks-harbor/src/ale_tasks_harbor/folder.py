"""A folder of this machine that is listed once, with one system call.

A run reads thousands of folders before it starts; `pathlib` would take several times as long.
"""
# ruff: noqa: PTH123

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from ale.strict import decoded

_FIRST_LINE = 256
"""Bytes that the kernel reads of it."""


class Folder:
    """The content of a folder when it was first listed; empty if there is no such folder.

    Args:
        path: absolute.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._folders: dict[str, Folder] = {}

    @property
    def name(self) -> str:
        """The last part of its path."""
        return os.path.basename(self.path)  # noqa: PTH119

    def at(self, name: str) -> str:
        """The path of a name in it, whether it exists or not."""
        return f"{self.path}/{name}"

    def folder(self, name: str) -> "Folder":
        """A folder in it, whether it exists or not."""
        found = self._folders.get(name)
        if found is None:
            found = self._folders[name] = Folder(self.at(name))
        return found

    @cached_property
    def _entries(self) -> Mapping[str, os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as listing:
                return {entry.name: entry for entry in listing}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    @property
    def names(self) -> list[str]:
        """All names in it, sorted.

        Raises:
            OSError: it can't be listed; the other methods raise it too.
        """
        return sorted(self._entries)

    def has(self, name: str) -> bool:
        """Whether the name exists, even as a dangling link."""
        return name in self._entries

    def has_file(self, name: str) -> bool:
        """Whether it is a file or a link to one."""
        entry = self._entries.get(name)
        return entry is not None and _is(entry.is_file)

    def has_folder(self, name: str) -> bool:
        """Whether it is a folder or a link to one."""
        entry = self._entries.get(name)
        return entry is not None and _is(entry.is_dir)

    def links(self, name: str) -> bool:
        """Whether it is a link."""
        entry = self._entries.get(name)
        return entry is not None and entry.is_symlink()

    def files(self) -> Iterator[tuple["Folder", str]]:
        """All files in it and below, each with its folder. Links to folders are not followed."""
        deeper = []
        for name in self.names:
            if self.has_file(name):
                yield self, name
            elif self.has_folder(name) and not self.links(name):
                deeper.append(name)
        for name in deeper:
            yield from self.folder(name).files()

    def read(self, name: str, most: int = -1) -> bytes:
        """The bytes of a file, or only the first `most`.

        Raises:
            OSError: it can't be read.
        """
        with open(self.at(name), "rb", buffering=0) as file:
            return file.read(most)

    def starts_with_crlf(self, name: str) -> bool:
        """Whether a script's first line names its interpreter, and ends in CR LF.

        The kernel takes the CR for a part of the interpreter's name, and says that the script
        does not exist.

        Raises:
            OSError: it can't be read.
        """
        first, _, rest = self.read(name, _FIRST_LINE).partition(b"\r")
        return first.startswith(b"#!") and b"\n" not in first and rest.startswith(b"\n")

    def text(self, name: str) -> str:
        """The text of a file, with lines that end in a newline.

        Raises:
            OSError: it can't be read.
            InputError: it is not UTF-8.
        """
        text = decoded(self.read(name), Path(self.at(name)))
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _is(kind: Callable[[], bool]) -> bool:
    """Links that lead in a circle are neither."""
    try:
        return kind()
    except OSError:
        return False
