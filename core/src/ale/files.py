"""Write files and folders so that others see the old one or the new one, never a part of it."""

import errno
import glob
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ale.errors import StoreError


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block into a `StoreError`: `path` can't be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror or error}") from error


@contextmanager
def replacing(
    target: Path, *, folder: bool = False, sync: bool = False, private: bool = False
) -> Iterator[Path]:
    """A path beside `target` to write to in the block, which takes its place when the block ends.

    After an exception `target` is as it was, and what was written is removed. A killed process
    leaves a hidden file or folder ``.NAME.PID.partial``; one that is killed between the two steps
    in which a folder takes the place of another leaves the old one whole, as ``.NAME.PID.old``.

    Args:
        target: its parents are made.
        folder: the path is that of a new, empty folder, and a folder at `target` is replaced with
            all that is in it. Otherwise the block creates what it wants, and a folder at `target`
            that is not empty is an error.
        sync: have it on the disk before it takes its place, for after a power loss.
        private: who else may read it is as with `restrict`.

    Raises:
        OSError: it can't be written, or is neither a file nor a folder: whoever may write to
            ``/dev`` would replace ``/dev/null`` for the whole machine.
    """
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OSError(errno.EINVAL, "it is a device, a socket or a named pipe", str(target))
    partial = _partial(target, os.getpid())
    try:
        _remove(partial)
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            partial.mkdir(mode=0o700 if private else 0o777)
        yield partial
        if private:
            restrict(partial, target)
        if sync:
            _sync(partial)
        if folder and target.is_dir():
            _exchange(partial, target)
        else:
            partial.replace(target)
    except OSError as error:
        _name_target(error, partial, target)
        raise
    finally:
        with suppress(OSError):  # nothing is left after a success, and else the first error counts
            _remove(partial)


def _name_target(error: OSError, partial: Path, target: Path) -> None:
    """Let an error name what was to be written, rather than what took its place meanwhile."""
    named = os.fspath(error.filename) if isinstance(error.filename, str | Path) else ""
    if named == str(partial) or named.startswith(f"{partial}/"):
        error.filename = f"{target}{named.removeprefix(str(partial))}"


def _exchange(partial: Path, target: Path) -> None:
    old = partial.with_suffix(".old")
    _remove(old)
    target.replace(old)
    try:
        partial.replace(target)
    except BaseException:
        old.replace(target)
        raise
    _remove(old)


def open_file(path: Path) -> BinaryIO:
    """A file, opened to read bytes; a named pipe, at which a reader waits, or a device is none.

    Raises:
        OSError: it can't be read, or is no regular file.
    """
    # A pipe that nobody writes to would otherwise be waited for.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def restrict(path: Path, target: Path | None = None) -> None:
    """Let nobody else read a file or folder, as conversations may be in it.

    In a folder with the setgid bit, with which a group shares what is in it, the group may read it
    if the umask lets it. What takes the place of something else is as that was.

    Args:
        target: whose place the path will take; default: none.

    Raises:
        OSError: its mode can't be changed.
    """
    target = path if target is None else target
    mode = stat.S_IMODE(path.stat().st_mode)
    if target is not path and target.exists():
        others = stat.S_IMODE(target.stat().st_mode) & 0o077
    else:
        shared = target.parent.stat().st_mode & stat.S_ISGID
        others = mode & 0o070 if shared else 0
    wanted = mode & ~0o077 | others
    if wanted != mode:
        path.chmod(wanted)


def write_whole(
    path: Path, data: bytes | str, *, sync: bool = False, private: bool = False
) -> None:
    """Replace a file; text is written as UTF-8.

    Args:
        sync: as of `replacing`, and so is `private`.

    Raises:
        StoreError: it can't be written (a full disk); the old file stays.
    """
    encoded = data.encode("utf-8", "replace") if isinstance(data, str) else data
    with store_errors(path), replacing(path, sync=sync, private=private) as partial:
        partial.write_bytes(encoded)


def remove_partial(target: Path, pid: int | None = None) -> None:
    """Remove what killed processes left of `target`; nobody may be writing it, as under a lock.

    Args:
        pid: of this process alone, which is found without listing the folder.
    """
    if pid is not None:
        _remove(_partial(target, pid))
        return
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        _remove(left)


def _partial(target: Path, pid: int) -> Path:
    return target.with_name(f".{target.name}.{pid}.partial")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    for file in [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
