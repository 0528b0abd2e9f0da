"""The changes in the upper folders of an overlay while a check ran."""

import os
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

from ale.types import CarriedChange

_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


class _Entry(NamedTuple):
    inode: int
    changed: int
    mode: int

    @property
    def is_whiteout(self) -> bool:
        return stat.S_ISCHR(self.mode)


@define
class Upper:
    """Notes how upper folders are, and tells what has changed since.

    The time of change, which nobody in a sandbox can set, shows what was written, renamed or
    given another mode; that of a folder also what was there and is gone again.

    Args:
        folders: by path in the sandbox, the topmost first; ``""`` is the root.
        image: where something lay at a path before the agent began; None if nothing did.
        agents: paths that the agent has made or changed, which are never "changed" unless the
            image had them.
    """

    folders: Mapping[str, Path]
    image: Callable[[str], Path | None]
    agents: Collection[str]
    _noted: dict[str, _Entry] = field(factory=dict, init=False)

    def note(self) -> None:
        """Note how they are now. Blocks."""
        self._noted = self._entries()

    def changes(self) -> list[CarriedChange]:
        """The changes since, by path; of a folder, with a slash at its end, "changed" says that
        something in it is gone again. Blocks."""
        now = self._entries()
        latest: dict[str, int] = {}
        for path, entry in now.items():
            folder = path.rstrip("/").rpartition("/")[0] + "/"
            latest[folder] = max(latest.get(folder, 0), entry.changed)
        found = []
        for path, entry in now.items():
            if self._noted.get(path) == entry:
                continue
            if path.endswith("/"):
                change = self._of_folder(path, entry, latest.get(path, 0))
            else:
                change = self._of_file(path, entry)
            if change is not None:
                found.append(change)
        left = [path for path in self._noted if not path.endswith("/") and path not in self.agents]
        gone = [path for path in left if path not in now and not self._noted[path].is_whiteout]
        found += [CarriedChange(path=path, kind="removed") for path in gone]
        return sorted(found, key=lambda change: change.path)

    def _of_file(self, path: str, entry: _Entry) -> CarriedChange | None:
        before = self._noted.get(path)
        was_here = before is not None and not before.is_whiteout and path not in self.agents
        was = was_here or self.image(path) is not None
        if entry.is_whiteout:
            return CarriedChange(path=path, kind="removed") if was else None
        return CarriedChange(path=path, kind="changed" if was else "added")

    def _of_folder(self, path: str, entry: _Entry, latest: int) -> CarriedChange | None:
        place = self._place(path.rstrip("/"))
        if _is_opaque(place) and path not in self._noted and self.image(path.rstrip("/")):
            return CarriedChange(path=path, kind="removed")
        if entry.changed > latest:
            return CarriedChange(path=path, kind="changed")
        return None

    def _place(self, path: str) -> str:
        for prefix, folder in self.folders.items():
            if prefix and (path == prefix or path.startswith(f"{prefix}/")):
                return f"{folder}{path}"
        return f"{self.folders['']}{path}"

    def _entries(self) -> dict[str, _Entry]:
        """Every file by its path, and every folder by its path with a slash at the end."""
        found: dict[str, _Entry] = {}
        waiting = list(self.folders)
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(self._place(folder)) as listed:
                    entries = list(listed)
            except OSError:  # removed meanwhile
                continue
            for each in entries:
                path = f"{folder}/{each.name}"
                try:
                    about = each.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                is_folder = stat.S_ISDIR(about.st_mode)
                name = f"{path}/" if is_folder else path
                found[name] = _Entry(about.st_ino, about.st_ctime_ns, about.st_mode)
                if is_folder:
                    waiting.append(path)
        return found


def _is_opaque(folder: str) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(folder, name, follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue
    return False
