"""Find the entry points of installed packages without `importlib.metadata`.

Importing `importlib.metadata` takes a quarter of the time of `ale --help`, because it imports
modules for mail, CSV and archives. Most packages are recorded in folders with two files that are
fast to read. If packages may be recorded in another form (an archive, a custom finder), it is used
instead.

Source: packaging.python.org, "Recording installed projects" and "Entry points specification".
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

from attrs import frozen

_RECORDS = (".dist-info", ".egg-info")
"""Suffixes of the folders that record packages."""
_FIELD = re.compile(r"^(Name|Version): *(.+)$", re.M)
_ENTRY = re.compile(r"^\s*([^#=\s][^=\n]*?)\s*=\s*(.+?)\s*$", re.M)


@frozen
class Entry:
    """An entry point and its package."""

    distribution: str
    version: str
    name: str
    value: str
    """``module``, or ``module:attribute``."""

    def load(self) -> Any:
        """Import the object. Raises whatever the import raises."""
        module, _, path = self.value.partition("[")[0].partition(":")
        found: Any = import_module(module.strip())
        for attribute in filter(None, path.strip().split(".")):
            found = getattr(found, attribute)
        return found


def installed(group: str) -> list[Entry]:
    """The entry points of a group, sorted by package and name.

    Of two packages with one name, the first on `sys.path` counts.
    """
    found = _from_folders(group) if _only_folders() else _from_anywhere(group)
    return sorted(found, key=lambda entry: (entry.distribution, entry.name))


def _only_folders() -> bool:
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    return not any(hasattr(finder, "find_distributions") for finder in finders) and not any(
        place.endswith(".egg") or os.path.isfile(place)  # noqa: PTH113 - text, for speed
        for place in sys.path
    )


def _from_folders(group: str) -> Iterator[Entry]:
    # Hundreds of packages may be installed; text is several times faster than `Path`.
    seen: set[str] = set()
    for place in dict.fromkeys(sys.path):
        names: list[str] = []
        with suppress(OSError):  # a folder on sys.path may be missing
            names = os.listdir(place or ".")  # noqa: PTH208
        for name in (name for name in names if name.endswith(_RECORDS)):
            package = name.rpartition(".")[0].partition("-")[0]
            normal = re.sub("[-_.]+", "-", package).lower()
            if normal not in seen:
                seen.add(normal)
                yield from _recorded(f"{place or '.'}/{name}", group, package)


def _recorded(folder: str, group: str, package: str) -> Iterator[Entry]:
    _, _, entries = f"\n{_read(f'{folder}/entry_points.txt')}".partition(f"\n[{group}]\n")
    if entries:
        about = (_read(f"{folder}/METADATA") or _read(f"{folder}/PKG-INFO")).partition("\n\n")[0]
        fields = {"Name": package, "Version": "0", **dict(_FIELD.findall(about))}
        for name, value in _ENTRY.findall(entries.partition("\n[")[0]):
            yield Entry(fields["Name"], fields["Version"], name, value)


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read()
    return ""


def _from_anywhere(group: str) -> Iterator[Entry]:
    import importlib.metadata

    for entry in importlib.metadata.entry_points(group=group):
        assert entry.dist is not None
        yield Entry(entry.dist.name, entry.dist.version, entry.name, entry.value)
