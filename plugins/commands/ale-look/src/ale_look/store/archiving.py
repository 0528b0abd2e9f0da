"""Archives of runs: a compressed tar each, compared with the run before that is removed.

The manifest is the archive's first file, so that reading what it holds is quick. A run is archived
only if `restore` would take the archive: links that lead out of the run are refused by both.
"""

import gzip
import hashlib
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from ale.errors import InputError, NotUsableError, StoreError
from ale.files import replacing, store_errors
from ale.runs import NOTES, RunReader, hold_notes
from ale_look.store.removing import held, remove

SUFFIX = ".tar.gz"
_MANIFEST = "manifest.json"
_LEFT_OUT = {".lock"}
"""It belongs to the process that writes to the run."""
_LEVEL = 6
_PIECE = 1 << 20

_Content = tuple[str, str]
"""Kind of an entry, and its SHA-256 or where a link leads."""


def archive(run: Path, folder: Path, *, keep: bool = False) -> Path:
    """Write a run as an archive, read it back, and remove the run; the archive's path.

    Where an archive of this run is there already, it is compared with the run.

    Args:
        folder: where the archive is written.
        keep: keep the run directory too.

    Raises:
        InputError: it is no run; a file of it can't be archived; or another archive of this name
            is there.
        StoreError: a process writes to the run, or something can't be written or removed. The run
            is unchanged.
    """
    _check_python()
    run = run.absolute()
    target = folder / f"{run.name}{SUFFIX}"
    with held(run), hold_notes(run):
        try:
            if not target.exists():
                _write(run, target)
            elif _compare(target, run) is not None:
                message = "another archive of this name, not of the run as it is now"
                raise InputError.of(message, file=str(target))
            _sync(folder)
        except OSError as error:
            raise StoreError(f"{target} can't be written: {error.strerror}") from error
        if not keep:
            remove(run)
    return target


def _write(run: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:
                for path in _entries(run):
                    _add(tar, path, f"{run.name}/{path.relative_to(run)}")
            file.flush()
            os.fsync(file.fileno())
        different = _compare(partial, run)
        if different is not None:
            raise StoreError(f"{run} was not archived: {different} differs in the archive")
        os.link(partial, target)  # a rename would overwrite one that has appeared
    except FileExistsError:
        message = "another archive of this name appeared meanwhile"
        raise InputError.of(message, file=str(target)) from None
    finally:
        partial.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries(run: Path) -> Iterator[Path]:
    """Everything in a run, the manifest first, folders before what is in them."""
    yield run / _MANIFEST
    for folder, inner, names in os.walk(run):
        inner.sort()
        here = Path(folder)
        for name in sorted([*inner, *names]):
            path = here / name
            if not (here == run and _is_left_out(path)):
                yield path


def _is_left_out(path: Path) -> bool:
    """The manifest comes first; without notes, their file is there to be locked only."""
    is_empty = path.name == NOTES and path.is_file() and not path.stat().st_size
    return is_empty or path.name in {_MANIFEST, *_LEFT_OUT}


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    entry = tar.gettarinfo(path, name)
    if entry is None:
        message = "neither a file nor a folder nor a link; it can't be archived"
        raise InputError.of(message, file=str(path))
    if entry.islnk():  # a second name of a file: stored as a file of its own
        entry.type, entry.size, entry.linkname = tarfile.REGTYPE, path.stat().st_size, ""
    if not (entry.isreg() or entry.isdir() or entry.issym()):
        raise InputError.of("a device or a pipe; it can't be archived", file=str(path))
    try:
        tarfile.data_filter(entry, str(path.parent))
    except tarfile.FilterError as error:
        raise InputError.of(f"it could not be restored safely: {error}", file=str(path)) from None
    if entry.isreg():
        with path.open("rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry)


def _compare(archive_: Path, run: Path) -> str | None:
    """The first entry that differs between an archive and a run, or None."""
    here = {f"{run.name}/{path.relative_to(run)}": _content(path) for path in _entries(run)}
    with _reading(archive_) as tar:
        there = {entry.name: _stored(tar, entry) for entry in tar}
    names = sorted({*here, *there})
    return next((name for name in names if here.get(name) != there.get(name)), None)


def _content(path: Path) -> _Content:
    if path.is_symlink():
        return "link", str(path.readlink())
    if path.is_dir():
        return "folder", ""
    with path.open("rb") as file:
        return "file", hashlib.file_digest(file, "sha256").hexdigest()


def _stored(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> _Content:
    if entry.issym():
        return "link", entry.linkname
    file = tar.extractfile(entry)
    if file is None:
        return "folder", ""
    return "file", hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


@contextmanager
def _reading(path: Path) -> Iterator[tarfile.TarFile]:
    """An open archive, which is read to its end: its checksum comes last."""
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            yield tar
            while stream.read(_PIECE):
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError.of(f"not a whole archive: {error}", file=str(path)) from None
    except FileNotFoundError:
        raise InputError.of("no such file", file=str(path)) from None


def restore(path: Path, folder: Path) -> Path:
    """Make the run directory of an archive again; the archive stays. Its path.

    Raises:
        InputError: it is no whole archive of a run, or the run directory is there already.
        StoreError: something can't be written.
    """
    _check_python()
    name, _ = _first(path)
    target = folder / name
    if target.exists():
        raise InputError.of("is there already", file=str(target))
    with (
        store_errors(target),
        replacing(target, private=True) as partial,
        tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as scratch,
    ):
        with _reading(path) as tar:
            for entry in tar:
                _extract(tar, entry, Path(scratch), path)
        RunReader(Path(scratch) / name)  # it is one
        (Path(scratch) / name).rename(partial)
    return target


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, path: Path) -> None:
    try:
        tar.extract(entry, folder, filter="data")
    except tarfile.FilterError as error:
        raise InputError.of(f"it holds what no run has: {error}", file=str(path)) from None


def _first(path: Path) -> tuple[str, dict[str, Any]]:
    """The name of the run directory in an archive, and its manifest."""
    message = "not an archive of a run"
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            entry = tar.next()
            file = None if entry is None else tar.extractfile(entry)
            if entry is not None and file is not None:
                name, slash, inner = entry.name.partition("/")
                if slash and inner == _MANIFEST and not name.startswith("."):
                    return name, {"run_id": name, **json.load(file)}
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError):
        message = "not a whole archive of a run"
    except FileNotFoundError:
        message = "no such file"
    raise InputError.of(message, file=str(path))


def archives_in(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The archives of runs in a folder, and their manifests."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            found.append((path, _first(path)[1]))
        except InputError:
            continue  # another archive
    return found


def _check_python() -> None:
    if not hasattr(tarfile, "data_filter"):
        raise NotUsableError("archives need Python 3.11.4 or later, which restores them safely")
