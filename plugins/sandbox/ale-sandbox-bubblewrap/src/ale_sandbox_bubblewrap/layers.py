"""The file system of a sandbox: mounted, switched to a new top layer, copied.

Runs in the fork server's children, in namespaces of their own. Standard library only. Paths are
relative to `STAGING`, the current folder there: the kernel takes one page of them, and a sandbox
sees them in its list of mounts.

A layer is ``layers/<name>/up/<tree>`` for each tree, where a tree is ``root`` or a system folder
such as ``usr``.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ale import folders
from ale_sandbox_bubblewrap import kernel

STAGING = "/sys"
"""Working folder in the fork server's namespaces: every host has it, no sandbox does."""
LAYERS, CONTROL = "layers", "control"
"""The folder of the store, bound there, and that of the host's pipes."""
MERGED, PROGRAMS, ROOT = "merged", "programs", "root"
IN_MEMORY = "disk"
"""Where a sandbox mounts a file system of its own, if its disk is limited."""
_OPAQUE = "user.overlay.opaque"
_WHITEOUT = os.makedev(0, 0)
_MOST_LINKED = 200
"""Files with several names that stay one file in a copy; each takes a descriptor."""


class Layout(NamedTuple):
    """How the file system of a sandbox is put together."""

    overlay: bool
    """Layers by overlayfs; else a plain folder, copied."""
    system: Sequence[str]
    """System folders that are writable by a layer; else they are bound read-only."""
    place: str
    """Folder of the layers."""

    @property
    def trees(self) -> list[str]:
        """What each layer holds."""
        return [ROOT, *self.system] if self.overlay else [ROOT]


def prepare(layout: Layout, layer: str) -> None:
    """Make the folders of a new layer."""
    for tree in layout.trees:
        for part in ("up", "work"):
            Path(layout.place, layer, part, tree).mkdir(parents=True)


def mount(layout: Layout, layers: Sequence[str]) -> None:
    """Mount a sandbox's file system at `MERGED`.

    Args:
        layers: the topmost, which is written to, first.
    """
    if not layout.overlay:
        (only,) = layers
        upper = Path(layout.place, only, "up", ROOT)
        if not any(upper.iterdir()):
            shutil.copytree(ROOT, upper, symlinks=True, dirs_exist_ok=True)
        kernel.mount(str(upper), MERGED, flags=kernel.MS_BIND)
        return
    top, *below = layers
    for tree in layout.trees:
        lowers = [f"{layout.place}/{layer}/up/{tree}" for layer in below] + [tree]
        if tree != ROOT:
            lowers.append(f"/{tree}")
        above = f"{layout.place}/{top}"
        options = (
            f"lowerdir={':'.join(lowers)},upperdir={above}/up/{tree},workdir={above}/work/{tree},"
            # Attributes that a user may set, and no flushing to disk: nothing is permanent.
            "userxattr,volatile"
        )
        target = MERGED if tree == ROOT else f"{MERGED}/{tree}"
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("overlay", target, "overlay", flags, options)


def mount_pristine(layout: Layout) -> None:
    """Mount what the host has at `MERGED`, untouched by any sandbox."""
    kernel.mount(ROOT, MERGED, flags=kernel.MS_BIND)
    for tree in layout.system:
        kernel.mount(f"/{tree}", f"{MERGED}/{tree}", flags=kernel.MS_BIND | kernel.MS_REC)


def switch(layout: Layout, layers: Sequence[str], inside: int, submounts: Sequence[str]) -> bool:
    """Give a running sandbox a new top layer; the old one does not change any more.

    Processes keep their open files, which stay as they are. Their current folder still is the
    old one, unless it was the root; nothing can be written there.

    Args:
        layers: the new ones, the topmost first.
        inside: the sandbox's mount namespace; its user namespace has been joined.
        submounts: mount points that the new root takes over.

    Returns:
        False, and nothing has changed: a file is open for writing.
    """
    prepare(layout, layers[0])
    mount(layout, layers)
    merged = kernel.clone_tree(MERGED)
    kernel.setns(inside, kernel.CLONE_NEWNS)
    frozen = []
    try:
        for tree in layout.trees:
            path = "/" if tree == ROOT else f"/{tree}"
            kernel.make_read_only(path)
            frozen.append(path)
        replace_root(merged, submounts)
    except OSError as error:
        for path in frozen:
            kernel.make_read_only(path, read_only=False)
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def replace_root(merged: int, submounts: Sequence[str]) -> None:
    """Make the mounts at a descriptor the root of this mount namespace and its processes."""
    trees = [(path, kernel.clone_tree(path)) for path in submounts]
    old = os.open("/", os.O_PATH | os.O_DIRECTORY)
    kernel.attach(merged, old, ".")
    for path, tree in trees:
        kernel.attach(tree, merged, path.lstrip("/"))
    os.fchdir(merged)
    kernel.pivot_root_here()
    os.fchdir(old)
    kernel.detach(".")


def merge(layout: Layout, stack: Sequence[str], into: str) -> None:
    """Make one layer that shows what a stack shows, topmost first. Files are shared, not copied."""
    prepare(layout, into)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    for tree in layout.trees:
        target = os.open(f"{layout.place}/{into}/up/{tree}", flags)
        for layer in reversed(stack):
            source = os.open(f"{layout.place}/{layer}/up/{tree}", flags)
            apply(source, target, link=True)
            os.close(source)
        os.close(target)


def apply(source: int, target: int, *, link: bool = False) -> None:
    """Put a layer on top of another, or copy it into an empty folder.

    Both are open folders: no link in them can lead out, also while a sandbox still writes there.

    Args:
        link: share the files, which is right where neither layer is written to again.
    """
    with contextlib.closing(_Layer(link=link)) as layer:
        layer.all(source, target, os.fstat(source))


class _Layer(folders.Copy):
    """Copies a layer with what overlayfs notes in it."""

    def __init__(self, *, link: bool) -> None:
        self._link = link
        self._firsts: dict[tuple[int, int], int] = {}
        """Open copies of files with several names."""

    def folder(self, source: int, target: int, name: str) -> None:
        """A folder of this name, made where it is not there yet; new ones hide what is below."""
        try:
            there = os.stat(name, dir_fd=target, follow_symlinks=False)
        except FileNotFoundError:
            hides = False
        else:
            hides = _is_opaque(source) or not stat.S_ISDIR(there.st_mode)
            if hides:
                _remove(target, name)
        super().folder(source, target, name)
        if hides:
            made = folders.open_folder(name, target)
            try:
                os.setxattr(made, _OPAQUE, b"y")
            finally:
                os.close(made)

    def file(
        self, source: int, target: int, name: str, about: os.stat_result, new: str | None = None
    ) -> None:
        _remove(target, name)
        if self._link:
            os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        elif stat.S_ISCHR(about.st_mode) and about.st_rdev == _WHITEOUT:
            os.mknod(name, about.st_mode, _WHITEOUT, dir_fd=target)
        elif (first := self._firsts.get((about.st_dev, about.st_ino))) is not None:
            os.link(f"/proc/self/fd/{first}", name, dst_dir_fd=target, follow_symlinks=True)
        else:
            self._copy(source, target, name, about)

    def _copy(self, source: int, target: int, name: str, about: os.stat_result) -> None:
        if stat.S_ISSOCK(about.st_mode):
            os.mknod(name, about.st_mode, dir_fd=target)  # nobody listens at it
        else:
            super().file(source, target, name, about)
        if about.st_nlink > 1 and len(self._firsts) < _MOST_LINKED:
            first = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=target)
            self._firsts[about.st_dev, about.st_ino] = first

    def close(self) -> None:
        """Forget files with several names."""
        for first in self._firsts.values():
            os.close(first)
        self._firsts.clear()

    def attributes(self, source: int, target: int, about: os.stat_result) -> None:
        for name in _attributes(source):
            os.setxattr(target, name, os.getxattr(source, name))
        super().attributes(source, target, about)


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE) == b"y"
    except OSError:  # it has no such attribute, or the file system has none at all
        return False


def _remove(parent: int, name: str) -> None:
    left = folders.remove(name, parent)
    if left:
        raise OSError(errno.ENOTEMPTY, f"{left[0].path} can't be removed: {left[0].why}", name)


def _attributes(descriptor: int) -> list[str]:
    try:
        return [name for name in os.listxattr(descriptor) if name.startswith("user.")]
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # a file system without attributes has none to copy
            return []
        raise
