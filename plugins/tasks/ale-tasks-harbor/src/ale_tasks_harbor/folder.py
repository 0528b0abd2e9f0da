"""A folder of this machine, listed once: a run looks into thousands before it starts.

So system calls count here. One lists a folder and tells files from folders, and pathlib, which
takes paths apart anew for each of them, is left out.
"""
# ruff: noqa: PTH123

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property


class Folder:
    """What is in a folder, as it was when first asked for; nothing where there is none.

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
        """The path of what is in it, or would be."""
        return f"{self.path}/{name}"

    def folder(self, name: str) -> "Folder":
        """A folder in it, or what would be one."""
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
        """All that is in it, sorted.

        Raises:
            OSError: it can't be read. So do the others.
        """
        return sorted(self._entries)

    def has(self, name: str) -> bool:
        """Is there something of this name, if only a link that leads nowhere?"""
        return name in self._entries

    def has_file(self, name: str) -> bool:
        """Is it there, a file, or a link to one?"""
        entry = self._entries.get(name)
        return entry is not None and _is(entry.is_file)

    def has_folder(self, name: str) -> bool:
        """Is it there, a folder, or a link to one?"""
        entry = self._entries.get(name)
        return entry is not None and _is(entry.is_dir)

    def links(self, name: str) -> bool:
        """Is it a link?"""
        entry = self._entries.get(name)
        return entry is not None and entry.is_symlink()

    def files(self) -> Iterator[tuple["Folder", str]]:
        """All files in it and below, each with its folder. No link to a folder is followed."""
        deeper = []
        for name in self.names:
            if self.has_file(name):
                yield self, name
            elif self.has_folder(name) and not self.links(name):
                deeper.append(name)
        for name in deeper:
            yield from self.folder(name).files()

    def read(self, name: str, most: int = -1) -> bytes:
        """A file's bytes, or only the first of them.

        Raises:
            OSError: it can't be read.
        """
        with open(self.at(name), "rb", buffering=0) as file:
            return file.read(most)

    def text(self, name: str) -> str:
        """A text, its lines ended as everywhere.

        Raises:
            OSError: it can't be read.
            UnicodeDecodeError: it is no UTF-8.
        """
        text = self.read(name).decode()
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _is(kind: Callable[[], bool]) -> bool:
    """A link in a circle is nothing."""
    try:
        return kind()
    except OSError:
        return False
