"""A copy, for a judge, of the files that were changed in a container.

An overlay keeps changed files in an upper folder: what is removed as a device 0/0 (a whiteout), a
folder that hides the image's as one with an attribute (opaque). A copy of this folder, below a
fresh container of the same image, is the same state.

Whether a file of the copy was used is read from its times: the kernel sets the time of access when
a file is read or run, or a link is followed, and the time of change when anybody sets the former
back. So no program in the container can hide that it was.
"""

import contextlib
import errno
import os
import posixpath
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from attrs import define, field, frozen

from ale.errors import UnsupportedError
from ale.folders import copy_data
from ale.judging import EVERYTHING, InMemory, compiled, git, lost_its_mode
from ale.types import CarriedChange

_OPAQUE = "trusted.overlay.opaque"
_OVERLAYS = "trusted.overlay."
_NOT_COPIED = tuple(f"{_OVERLAYS}{name}" for name in ("origin", "impure", "nlink", "upper"))
"""Attributes that say where the overlay itself has taken a file from."""
_KERNELS = ("/dev", "/proc", "/sys", "/.ale")
"""Mounts, of which the upper folder has only the places."""
_CLOCK_NS = 20_000_000
"""A file system's clock may be so far behind."""
_LONGEST = 1 << 20
"""Bytes of files that are compared with the image's."""


class _Times(NamedTuple):
    inode: int
    accessed: int
    changed: int

    @classmethod
    def of(cls, path: str) -> "_Times | None":
        """None where there is nothing any more."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        return cls(found.st_ino, found.st_atime_ns, found.st_ctime_ns)


@frozen(kw_only=True)
class Layers:
    """Folders of an overlay on this machine."""

    upper: Path
    lower: tuple[Path, ...]
    """The topmost first."""

    def in_image(self, path: str) -> Path | None:
        """Where the image keeps what is at a path; None where it has nothing there."""
        parts = [part for part in path.split("/") if part]
        for layer in self.lower:
            place = layer
            for number, part in enumerate(parts):
                place = place / part
                try:
                    mode = place.lstat().st_mode
                except OSError:
                    break
                last = number == len(parts) - 1
                if stat.S_ISCHR(mode) or (not last and not stat.S_ISDIR(mode)):
                    return None  # removed, or a file, in this layer
                if last:
                    return place
                if _is_opaque(str(place)):
                    rest = place.joinpath(*parts[number + 1 :])
                    return rest if os.path.lexists(rest) else None
        return None

    def has(self, path: str) -> bool:
        """Whether there is something at a path: in the upper folder, or else in the image."""
        place = str(self.upper)
        for part in (part for part in path.split("/") if part):
            place = f"{place}/{part}"
            with contextlib.suppress(OSError):
                if stat.S_ISCHR(os.lstat(place).st_mode):
                    return False
        return os.path.lexists(place) or self.in_image(path) is not None


def _is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


@define
class Carried:
    """The copy of one upper folder.

    Args:
        source: layers of the container that was worked in.
        target: the upper folder of a container of the same image that has not been started.
        since: seconds since 1970; what was changed earlier is copied, and not told of.
        without: see `ale.protocols.OpensJudge.open_judge`.
    """

    source: Layers
    target: Layers
    since: float
    without: Collection[str] = ()
    root: Path | None = None
    """The target container's files as its processes see them, if it has been started: then they are
    changed there, since nobody may change an upper folder that is in use."""
    mounts: Collection[str] = ()
    """Paths of other file systems in it."""
    memory: Sequence[InMemory] = field(factory=list, init=False)
    """Folders of the target that are in no layer."""
    _times: dict[str, _Times] = field(factory=dict, init=False)
    """After the copy, by path in the container."""
    _removed: list[str] = field(factory=list, init=False)
    _linked: dict[tuple[int, int], str] = field(factory=dict, init=False)
    """Files with several names: what the first was copied to."""
    _revealed: set[str] = field(factory=set, init=False)
    """Folders that no longer hide the image's."""
    _unusable: set[str] = field(factory=set, init=False)
    """Files of the image that have lost a mode or are of another kind: who fails to run them does
    not use them."""
    _indexes: list[str] = field(factory=list, init=False)
    """Paths of indexes of git."""
    _elsewhere: set[str] = field(factory=set, init=False)
    """Changed files that lie in no layer of the source's."""

    def copy(self) -> None:
        """Copy. Nothing may change the source meanwhile.

        Raises:
            OSError: it failed, as where the disk is full.
            UnsupportedError: only into a container that has not been started.
        """
        for path in self.without:
            if path.endswith("/"):
                self._revealed.add(path.rstrip("/"))
            parent = posixpath.dirname(path)
            while parent not in ("", "/"):
                self._revealed.add(parent)
                parent = posixpath.dirname(parent)
        self._folder("")
        for path in self._indexes:
            self._move_index(path)

    @property
    def paths(self) -> Collection[str]:
        """Paths of the files and links that are the agent's."""
        return {*self._times, *(path for folder in self.memory for path in folder.paths)}

    def used(self) -> list[CarriedChange]:
        """See `ale.protocols.Judge.used`. By path."""
        blind = bool(os.statvfs(self.target.upper).f_flag & os.ST_NOATIME)
        found = [
            self._change(path)
            for path, times in self._times.items()
            if blind or path in self._unusable or _Times.of(f"{self.target.upper}{path}") != times
        ]
        found += [change for folder in self.memory for change in folder.used()]
        removed = [CarriedChange(path=path, kind="removed") for path in self._removed]
        return sorted([*found, *removed], key=lambda change: change.path)

    def watch_changed(self, path: str) -> None:
        """Tell of the use of a file that was changed, and is in no layer of the source's."""
        place = f"{self.target.upper}{path}"
        os.utime(place, ns=(0, os.lstat(place).st_mtime_ns), follow_symlinks=False)
        if (times := _Times.of(place)) is not None:
            self._times[path] = times
            self._elsewhere.add(path)

    def _change(self, path: str) -> CarriedChange:
        if path in self._elsewhere:
            return CarriedChange(path=path, kind="changed")
        old, new = self.source.in_image(path), Path(f"{self.source.upper}{path}")
        text = str(new.readlink()) if new.is_symlink() else ""
        if old is None:
            return CarriedChange(path=path, kind="added", link=text)
        longer = _begins(new, old)
        return CarriedChange(path=path, kind="changed", only_longer=longer, link=text)

    def _folder(self, path: str) -> None:
        """Copy what is in a folder, and all below it."""
        waiting = [path]
        left_out = {*self.without, *_KERNELS, *self.mounts}
        made: list[tuple[str, os.stat_result]] = []
        while waiting:
            folder = waiting.pop()
            for name in _names(f"{self.source.upper}{folder}"):
                place = f"{folder}/{name}"
                if not {name, place}.isdisjoint(left_out):
                    continue
                about = os.lstat(f"{self.source.upper}{place}")
                if self._is_left_out(place, about):
                    continue
                if stat.S_ISDIR(about.st_mode):
                    self._make(place, about)
                    made.append((place, about))
                    waiting.append(place)
                else:
                    self._entry(place, about)
        for place, about in reversed(made):  # a folder's time changes with what is made in it
            times = (about.st_atime_ns, about.st_mtime_ns)
            os.utime(f"{self._into}{place}", ns=times, follow_symlinks=False)

    def _is_left_out(self, path: str, about: os.stat_result) -> bool:
        """Whether it is a compiled module, or one of all changes where these are left out."""
        place = f"{self.source.upper}{path}"
        if compiled.is_no_work(path, place, about.st_mode, self._is_the_agents):
            return True
        if EVERYTHING not in self.without or not self._is_new(about):
            return False
        if not stat.S_ISDIR(about.st_mode):
            return True
        old = self.source.in_image(path)
        return old is not None and not old.is_dir()

    def _is_the_agents(self, path: str) -> bool:
        try:
            about = os.lstat(f"{self.source.upper}{path}")
        except OSError:
            return False
        return not stat.S_ISCHR(about.st_mode) and self._is_new(about)

    @property
    def _into(self) -> Path:
        return self.target.upper if self.root is None else self.root

    def _make(self, path: str, about: os.stat_result) -> None:
        old, new = f"{self.source.upper}{path}", f"{self._into}{path}"
        hides = _is_opaque(old)
        revealed = path in self._revealed or (EVERYTHING in self.without and self._is_new(about))
        if self.root is not None:
            self._make_way(new, folder=not hides or revealed)
        with contextlib.suppress(FileExistsError):
            os.mkdir(new)  # noqa: PTH102
        self._attributes(path, about)
        if hides and revealed:
            with contextlib.suppress(OSError):  # it has none where the container runs
                os.removexattr(new, _OPAQUE, follow_symlinks=False)
        elif hides and self._is_new(about) and self.source.in_image(path) is not None:
            self._removed.append(f"{path}/")

    def _make_way(self, place: str, *, folder: bool = False) -> None:
        """Remove what is at a place of a container that runs.

        Args:
            folder: but not a folder.
        """
        try:
            kind = os.lstat(place).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(kind):
            os.unlink(place)  # noqa: PTH108
        elif not folder:
            shutil.rmtree(place)

    def _entry(self, path: str, about: os.stat_result) -> None:
        new, kind = f"{self._into}{path}", about.st_mode
        if self.root is not None:
            self._make_way(new)
        first = self._linked.get((about.st_dev, about.st_ino))
        if stat.S_ISCHR(kind) and about.st_rdev == 0:
            self._remove(path, about)
            return
        if first is not None:
            os.link(first, new, follow_symlinks=False)
        else:
            self._content(path, about)
            self._attributes(path, about)
            os.utime(new, ns=(0, about.st_mtime_ns), follow_symlinks=False)
        if about.st_nlink > 1 and first is None:
            self._linked[about.st_dev, about.st_ino] = new
        if path.endswith(git.INDEX) and stat.S_ISREG(kind):
            self._indexes.append(path)
        if self._is_new(about):
            self._watch(path, kind, has_other_names=first is not None)

    def _watch(self, path: str, kind: int, *, has_other_names: bool) -> None:
        """Note the times of a copied file, after which it is used."""
        times = _Times.of(f"{self.target.upper}{path}")
        if times is None:
            return
        self._times[path] = times
        old = self.source.in_image(path)
        if old is not None and lost_its_mode(old.lstat().st_mode, kind):
            self._unusable.add(path)
        if has_other_names:
            self._refresh(times)

    def _move_index(self, path: str) -> None:
        """Make what git knew of files true of the copies, which have other numbers and times."""
        folder = path.removesuffix(git.INDEX)
        source, seen = (Path(f"{layers.upper}{folder}") for layers in (self.source, self.target))
        git.move_index(
            Path(f"{self._into}{path}"),
            sources=[source],
            seen=seen,
            image=lambda name: self.source.in_image(f"{folder}/{name}"),
        )
        times = _Times.of(f"{self.target.upper}{path}")
        if path in self._times and times is not None:
            self._times[path] = times
            self._refresh(times)

    def _remove(self, path: str, about: os.stat_result) -> None:
        if self.root is None:
            os.mknod(f"{self._into}{path}", stat.S_IFCHR, 0)
        if self._is_new(about):
            self._removed.append(path)

    def _refresh(self, times: _Times) -> None:
        """A further name has changed the time of change of the others."""
        for path, other in self._times.items():
            if other.inode == times.inode:
                self._times[path] = times

    def _content(self, path: str, about: os.stat_result) -> None:
        old, new = f"{self.source.upper}{path}", f"{self._into}{path}"
        if stat.S_ISLNK(about.st_mode):
            os.symlink(os.readlink(old), new)  # noqa: PTH115, PTH211
        elif not stat.S_ISREG(about.st_mode):
            # A named pipe, a socket that nobody listens at, or a device.
            os.mknod(new, about.st_mode, about.st_rdev)
        else:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            source = os.open(old, flags)
            try:
                target = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                try:
                    copy_data(source, target)
                finally:
                    os.close(target)
            finally:
                os.close(source)

    def _attributes(self, path: str, about: os.stat_result) -> None:
        old, new = f"{self.source.upper}{path}", f"{self._into}{path}"
        os.chown(new, about.st_uid, about.st_gid, follow_symlinks=False)
        if not stat.S_ISLNK(about.st_mode):
            os.chmod(new, stat.S_IMODE(about.st_mode))  # noqa: PTH101 - after chown, which clears bits
        for name in os.listxattr(old, follow_symlinks=False):
            if name in _NOT_COPIED:
                continue
            if self.root is not None and name.startswith(_OVERLAYS):
                if name == _OPAQUE:
                    continue
                raise UnsupportedError(f"{path} has the attribute {name}")
            try:
                value = os.getxattr(old, name, follow_symlinks=False)
                os.setxattr(new, name, value, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.ENOTSUP, errno.ENODATA):
                    raise

    def _is_new(self, about: os.stat_result) -> bool:
        return about.st_ctime_ns >= self.since * 1e9 - _CLOCK_NS


def _names(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from sorted(entry.name for entry in entries)


def _begins(new: Path, old: Path) -> bool:
    """Is a file the other one with something after it?"""
    try:
        if not (stat.S_ISREG(new.lstat().st_mode) and stat.S_ISREG(old.lstat().st_mode)):
            return False
        if max(new.stat().st_size, old.stat().st_size) > _LONGEST:
            return False
        return new.read_bytes().startswith(old.read_bytes())
    except OSError:
        return False
