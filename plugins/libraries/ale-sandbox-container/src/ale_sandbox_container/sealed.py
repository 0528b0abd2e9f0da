"""The supervisor's shell: the image's own, in a copy that nobody inside may read.

The kernel keeps a process that was started from an unreadable file from being traced or looked
into by others of its user. One copy per image is made, and linked into each sandbox's pipe folder.
"""

import contextlib
import os
import stat
import tarfile
from pathlib import Path

from ale.errors import SandboxError
from ale_sandbox_container.engine import Engine, NotFoundError
from ale_sandbox_container.pipes import SEALED_SHELL, PipeFolder
from ale_sandbox_container.unpack import opened

IMAGE_SHELL = "/bin/sh"
_EXECUTE_ONLY = 0o111
_LINKS = 10


class SealedShells:
    """One copy per image, by image id.

    Args:
        folder: on a file system that lets programs be run; else the image's shell is used as it
            is, and `usable` is False.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def usable(self) -> bool:
        """Programs may be started from there."""
        place = next(path for path in (self._folder, *self._folder.parents) if path.exists())
        return not os.statvfs(place).f_flag & os.ST_NOEXEC

    @property
    def inside(self) -> str:
        """What the container runs."""
        return SEALED_SHELL if self.usable else IMAGE_SHELL

    def has(self, image: str) -> bool:
        """There is a copy of this image's shell."""
        return self._copy(image).exists()

    def _copy(self, image: str) -> Path:
        return self._folder / image.replace(":", "-")

    def put(self, engine: Engine, container: str, image: str, pipes: PipeFolder) -> None:
        """Link the image's shell into the pipe folder. Slow once per image."""
        if not self.usable:
            return
        copy = self._copy(image)
        if not copy.exists():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._make(engine, container, copy)
        pipes.link(copy, Path(SEALED_SHELL).name)

    def _make(self, engine: Engine, container: str, copy: Path) -> None:
        draft = copy.with_name(f"{copy.name}.{os.urandom(6).hex()}")
        try:
            with engine.get(container, _find(engine, container)) as pieces, opened(pieces) as tar:
                _write(tar, draft)
            draft.chmod(_EXECUTE_ONLY)
            # Never in place of another's: a file that is replaced while somebody links it is gone.
            with contextlib.suppress(FileExistsError):
                copy.hardlink_to(draft)
        finally:
            draft.unlink(missing_ok=True)


def _find(engine: Engine, container: str) -> str:
    path = IMAGE_SHELL
    for _ in range(_LINKS):
        try:
            found = engine.stat(container, path)
        except NotFoundError:
            raise SandboxError(
                "the image has no /bin/sh; a sandbox needs a POSIX shell in its image"
            ) from None
        if not stat.S_ISLNK(found.mode):
            return path
        path = str(Path(path).parent / found.link)
    raise SandboxError("the image's /bin/sh is a circle of links")


def _write(tar: tarfile.TarFile, draft: Path) -> None:
    entry = tar.next()
    content = None if entry is None else tar.extractfile(entry)
    if content is None:
        raise SandboxError("the image's /bin/sh is not a file")
    draft.write_bytes(content.read())
