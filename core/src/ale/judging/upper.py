"""The changes in the upper folders of an overlay while a check ran."""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

from ale.judging.watch import Watch
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
    given another mode; that of a folder also that something was there and is gone again. What it
    was is known of watched folders alone.

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
    _root: int | None = field(default=None, init=False)
    _watched: Mapping[str, int] = field(factory=dict, init=False)
    _watch: Watch | None = field(default=None, init=False)

    def note(self) -> None:
        """Note how they are now. Blocks."""
        if self._root is not None:
            self._watch_again(self._root)
        self._noted = self._entries()

    def watch(self, root: int, folders: Mapping[str, int]) -> None:
        """Follow what comes and goes. See `ale.protocols.Judge.watch`. Blocks.

        Args:
            root: descriptor of the sandbox's root, as a process in it has it; closed in the end.
        """
        self.close()
        self._root, self._watched = root, folders
        self._watch_again(root)

    def close(self) -> None:
        """Follow nothing any more. Blocks."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def _watch_again(self, root: int) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self._watch = Watch(root, self._watched)

    def changes(self) -> list[CarriedChange]:
        """The changes since, by path; of a folder, with a slash at its end, "changed" says that
        something in it is gone again. Blocks."""
        passed = [] if self._watch is None else list(self._passed(self._watch))
        return sorted([*self._stayed(), *passed], key=lambda change: change.path)

    def _passed(self, watch: Watch) -> Iterator[CarriedChange]:
        """Paths that came and are gone, and folders that were another one meanwhile."""
        if watch.refused:
            yield CarriedChange(path=watch.refused, kind="unseen")
        for path, kind in watch.passed():
            if kind != "folder":
                yield CarriedChange(path=path, kind="added")
            if kind != "file":
                yield CarriedChange(path=f"{path}/", kind="added")
        for path in watch.folders if watch.lost else watch.swapped:
            yield CarriedChange(path=path, kind="changed")

    def _stayed(self) -> list[CarriedChange]:
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
        return found + [CarriedChange(path=path, kind="removed") for path in gone]

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
        known = self._watch is not None and path.rstrip("/") in self._watch.folders
        if entry.changed > latest and not known:
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
                except OSError:  # also a path that is too long, where nothing is looked for
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
