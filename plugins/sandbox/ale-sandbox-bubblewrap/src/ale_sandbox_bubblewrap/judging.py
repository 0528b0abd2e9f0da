"""A fresh sandbox with the changes of another one, and which of these were used in it.

Whether a file was used is read from its times in the layer, on the host: the kernel sets the time
of access when a file is read or run, or a link is followed, and the time of change when anybody
sets the former back.
"""

import asyncio
import contextlib
import os
import posixpath
import shutil
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from ale.errors import UnsupportedError
from ale.judging import EVERYTHING, InMemory, Upper, compiled, git, lost_its_mode
from ale.protocols import Guarded
from ale.types import CarriedChange
from ale_sandbox_bubblewrap.layers import ROOT

if TYPE_CHECKING:
    from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox

_OPAQUE = "user.overlay.opaque"
_CLOCK_NS = 20_000_000
"""A file system's clock may be so far behind."""
_LONGEST = 1 << 20
"""Bytes of files that are compared with the host's."""
_ETC = "etc"


@frozen(kw_only=True)
class BubblewrapJudge:
    """See `ale.protocols.Judge`."""

    sandbox: "BubblewrapSandbox"
    carried: "Carried"
    upper: Upper
    memory: InMemory
    """The files of ``/dev/shm``."""

    @classmethod
    async def of(
        cls, sandbox: "BubblewrapSandbox", carried: "Carried", memory: InMemory
    ) -> "BubblewrapJudge":
        """The judge in a sandbox that was filled."""
        trees = {f"/{tree}": carried.target for tree in carried.trees if tree != ROOT}
        folders = {**trees, "": carried.target / ROOT}
        upper = Upper(folders, carried.image, carried.paths)
        await asyncio.to_thread(upper.note)
        return cls(sandbox=sandbox, carried=carried, upper=upper, memory=memory)

    async def watch(self, folders: Mapping[str, int]) -> None:
        """Follow which names come and go. Raises as `ale.protocols.Judge.watch`."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        _, (root,) = await self.sandbox.client.ask(do="open", path="/", flags=flags)
        await asyncio.to_thread(self.upper.watch, root, folders)

    async def settled(self) -> None:
        """Note how its files are now."""
        await asyncio.to_thread(self.upper.note)

    async def made(self) -> Sequence[CarriedChange]:
        """The changes in it since then."""
        return await asyncio.to_thread(self.upper.changes)

    async def used(self) -> Sequence[CarriedChange]:
        """The carried files that were used so far, and what was removed."""
        found = await asyncio.to_thread(lambda: [*self.carried.used(), *self.memory.used()])
        return sorted(found, key=lambda change: change.path)

    async def has(self, path: str, *, image: bool = False) -> bool:
        """Whether there is something at a path; with `image`, before the agent began."""
        return self.carried.has(path, image=image)

    def guarded(self, folder: str) -> AbstractAsyncContextManager[Guarded]:
        """Refused: the layers belong to a user namespace."""
        raise UnsupportedError("bubblewrap does not see who opens a file")


@define(kw_only=True)
class Carried:
    """The copy of layers, before its sandbox is mounted.

    Args:
        sources: the folders ``up`` of the layers that were worked in, the topmost first.
        target: that of their copy.
        trees: folders in it.
        below: of the layers under it, the topmost first.
        since: when the agent began, in seconds since 1970; earlier changes are not told of.
        without: see `ale.protocols.OpensJudge.open_judge`.
    """

    sources: Sequence[Path]
    target: Path
    trees: Sequence[str]
    below: Sequence[Path]
    since: float
    without: Collection[str]
    _times: dict[str, tuple[int, int, int]] = field(factory=dict, init=False)
    _removed: list[str] = field(factory=list, init=False)
    _revealed: set[str] = field(factory=set, init=False)
    _unusable: set[str] = field(factory=set, init=False)
    """Files of the host that have lost a mode or are of another kind: who fails to run them does
    not use them."""
    _links: dict[str, str] = field(factory=dict, init=False)
    """Texts of links."""
    _indexes: list[str] = field(factory=list, init=False)
    """Paths of indexes of git."""

    def mark(self) -> None:
        """Take out what is left out, and set the times of the rest."""
        for path in self.without:
            if path.endswith("/"):
                self._revealed.add(path.rstrip("/"))
            while (path := posixpath.dirname(path)) not in ("", "/"):
                self._revealed.add(path)
        for tree in self.trees:
            self._folder("" if tree == ROOT else f"/{tree}")
        for path in self._indexes:
            self._move_index(path)
        for path in self._times:  # each name of a file has changed the time of the others
            if (times := _times(self._place(path))) is not None:
                self._times[path] = times

    def _move_index(self, path: str) -> None:
        """Make what git knew of files true of the copies, which have other numbers and times."""
        folder = path.removesuffix(git.INDEX)
        sources = [Path(self._place(folder, layer)) for layer in self.sources]
        git.move_index(
            Path(self._place(path)),
            sources=sources,
            seen=Path(self._place(folder)),
            image=lambda name: self.image(f"{folder}/{name}"),
        )

    def _folder(self, path: str) -> None:
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            for name in sorted(os.listdir(self._place(folder))):  # noqa: PTH208
                place = f"{folder}/{name}"
                mode = os.lstat(self._place(place)).st_mode
                if not {name, place}.isdisjoint(self.without) or self._is_left_out(place):
                    self._leave_out(place, mode)
                elif stat.S_ISDIR(mode):
                    self._note_folder(place)
                    waiting.append(place)
                else:
                    self._note(place, mode)

    def _is_left_out(self, path: str) -> bool:
        """Whether it is a compiled module, or one of all changes where these are left out."""
        mode = os.lstat(self._place(path)).st_mode
        if compiled.is_no_work(path, self._place(path), mode, self._is_the_agents):
            return True
        if EVERYTHING not in self.without or not self._is_new(path):
            return False
        old = self.image(path)
        return not stat.S_ISDIR(mode) or (old is not None and not old.is_dir())

    def _is_the_agents(self, path: str) -> bool:
        try:
            mode = os.lstat(self._place(path)).st_mode
        except OSError:
            return False
        return not stat.S_ISCHR(mode) and self._is_new(path)

    def _leave_out(self, path: str, mode: int) -> None:
        if stat.S_ISDIR(mode):
            shutil.rmtree(self._place(path))
        else:
            os.unlink(self._place(path))  # noqa: PTH108

    def _note_folder(self, path: str) -> None:
        place = self._place(path)
        try:
            hides = os.getxattr(place, _OPAQUE, follow_symlinks=False) == b"y"
        except OSError:
            return
        everything = EVERYTHING in self.without and self._is_new(path)
        if hides and (everything or path in self._revealed):
            os.removexattr(place, _OPAQUE, follow_symlinks=False)
        elif hides and self._is_new(path) and self.image(path) is not None:
            self._removed.append(f"{path}/")

    def _note(self, path: str, mode: int) -> None:
        if stat.S_ISCHR(mode):
            if self._is_new(path) and self.image(path) is not None:
                self._removed.append(path)
            return
        place = self._place(path)
        if stat.S_ISLNK(mode):
            self._links[path] = os.readlink(place)  # noqa: PTH115
        os.utime(place, ns=(0, os.lstat(place).st_mtime_ns), follow_symlinks=False)
        if path.endswith(git.INDEX) and stat.S_ISREG(mode):
            self._indexes.append(path)
        times = _times(place)
        if times is not None and self._is_new(path):
            self._times[path] = times
            old = self.image(path)
            if old is not None and lost_its_mode(old.lstat().st_mode, mode):
                self._unusable.add(path)

    @property
    def paths(self) -> Collection[str]:
        """Paths of the files and links that are the agent's."""
        return self._times.keys()

    def used(self) -> list[CarriedChange]:
        """See `ale.protocols.Judge.used`. By path."""
        found = [
            self._change(path)
            for path, times in self._times.items()
            if path in self._unusable or _times(self._place(path)) != times
        ]
        removed = [CarriedChange(path=path, kind="removed") for path in self._removed]
        return sorted([*found, *removed], key=lambda change: change.path)

    def has(self, path: str, *, image: bool) -> bool:
        """See `ale.protocols.Judge.has`."""
        if image:
            return self.image(path) is not None
        place = self._place(path)
        if os.path.lexists(place):
            return not stat.S_ISCHR(os.lstat(place).st_mode)
        return self.image(path) is not None

    def _change(self, path: str) -> CarriedChange:
        old, text = self.image(path), self._links.get(path, "")
        if old is None:
            return CarriedChange(path=path, kind="added", link=text)
        longer = _begins(Path(self._place(path)), old)
        return CarriedChange(path=path, kind="changed", only_longer=longer, link=text)

    def image(self, path: str) -> Path | None:
        """Where something lay at this path before the agent began; None if nothing did."""
        for layer in self.below:
            place = Path(self._place(path, layer))
            if os.path.lexists(place):
                return None if stat.S_ISCHR(place.lstat().st_mode) else place
        top = path.strip("/").partition("/")[0]
        of_host = top in self.trees or top == _ETC
        return Path(path) if of_host and os.path.lexists(path) else None

    def _place(self, path: str, layer: Path | None = None) -> str:
        top = path.strip("/").partition("/")[0]
        tree = "" if top in self.trees else f"/{ROOT}"
        return f"{self.target if layer is None else layer}{tree}{path}"

    def _is_new(self, path: str) -> bool:
        for source in self.sources:
            with contextlib.suppress(OSError):
                changed = os.lstat(self._place(path, source)).st_ctime_ns
                return changed >= self.since * 1e9 - _CLOCK_NS
        return True


def _times(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_atime_ns, found.st_ctime_ns


def _begins(new: Path, old: Path) -> bool:
    """Is a file the other one with something after it?"""
    try:
        if not (stat.S_ISREG(new.lstat().st_mode) and stat.S_ISREG(old.stat().st_mode)):
            return False
        if max(new.lstat().st_size, old.stat().st_size) > _LONGEST:
            return False
        return new.read_bytes().startswith(old.read_bytes())
    except OSError:
        return False
