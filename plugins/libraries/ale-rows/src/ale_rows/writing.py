"""Write files atomically."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from ale import files
from ale.errors import InputError
from ale.files import store_errors

_encoder = msgspec.json.Encoder(enc_hook=str)


def encode(row: Any) -> bytes:
    """A row as JSON, without a newline."""
    return _encoder.encode(row)


def refuse_overwriting(out: Path, *sources: Path) -> None:
    """Refuse an output that is one of the inputs.

    Raises:
        InputError: the output is one of the inputs.
    """
    if any(source.resolve() == out.resolve() for source in sources):
        message = f"{out} is read and can't be written at the same time"
        raise InputError.of(message, path="out", hint="choose another name")


@contextmanager
def replacing(out: Path, *, folder: bool = False) -> Iterator[Path]:
    """A path to write to in the block, which then replaces `out`. What killed processes left of
    `out` is removed, unless another process writes in its folder.

    Args:
        folder: the path is a new folder, and `out` may be an existing folder, which is replaced
            with its contents. Otherwise a folder is refused.

    Raises:
        InputError: `out` is a folder where a file is to be written.
        StoreError: it can't be written; `out` is unchanged.
    """
    if out.is_dir() and not folder:
        message = f"{out} is a folder; a file is to be written"
        raise InputError.of(message, path="out", hint=f"{out / 'rows.jsonl'}")
    with (
        store_errors(out),
        _sharing(out),
        files.replacing(out, folder=folder, private=True) as partial,
    ):
        yield partial


@contextmanager
def _sharing(out: Path) -> Iterator[None]:
    """Hold a lock of the folder of `out` for the block, and first, if nobody else does, remove what
    killed processes left of `out`. The kernel releases locks of killed processes.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl  # here: there is none on Windows

        descriptor = os.open(out.parent, os.O_RDONLY | os.O_CLOEXEC)
    except (ModuleNotFoundError, PermissionError):  # it may be writable only
        yield
        return
    try:
        with suppress(OSError):  # others write there, or this file system has no such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            files.remove_partial(out)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writing_lines(out: Path) -> Iterator[Callable[[bytes], object]]:
    """A function that writes lines (each with its newline); the file exists after the block."""
    with replacing(out) as partial, partial.open("wb", buffering=1 << 20) as file:
        yield file.write


def write_lines(lines: Iterable[bytes], out: Path) -> int:
    """Write lines, given without newlines; returns their number. Errors as for `replacing`."""
    written = 0
    with writing_lines(out) as write:
        for line in lines:
            write(line + b"\n")
            written += 1
    return written
