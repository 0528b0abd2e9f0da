"""Write files atomically."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ale.errors import InputError, Problem, StoreError

_encoder = msgspec.json.Encoder(enc_hook=str)


def encode(row: Any) -> bytes:
    """A row as JSON, without a newline."""
    return _encoder.encode(row)


def refuse_overwriting(out: Path, *sources: Path) -> None:
    """Refuse an output that is one of the inputs.

    Raises:
        InputError: it is one.
    """
    if any(source.resolve() == out.resolve() for source in sources):
        message = f"{out} is read and can't be written at the same time"
        raise InputError([Problem(message=message, path="out", hint="choose another name")])


@contextmanager
def replacing(out: Path, *, folder: bool = False) -> Iterator[Path]:
    """A path to write to in the block, which then replaces `out`.

    Args:
        folder: `out` may be a folder, which is replaced with its contents. Otherwise a folder is
            refused.

    Raises:
        InputError: `out` is a folder where a file is to be written.
        StoreError: it can't be written; `out` is unchanged.
    """
    if out.is_dir() and not folder:
        message = f"{out} is a folder; a file is to be written"
        raise InputError([Problem(message=message, path="out", hint=f"{out / 'rows.jsonl'}")])
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        with store_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            if out.is_dir():
                shutil.rmtree(out)
            partial.replace(out)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)


@contextmanager
def store_errors(out: Path) -> Iterator[None]:
    """Raise an `OSError` of the block as `StoreError`: `out` can't be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{out} can't be written: {error.strerror or error}") from error


@contextmanager
def writing_lines(out: Path) -> Iterator[Callable[[bytes], object]]:
    """A function that writes lines (each with its newline); the file exists after the block."""
    with replacing(out) as partial, partial.open("wb", buffering=1 << 20) as file:
        yield file.write


def write_lines(lines: Iterable[bytes], out: Path) -> int:
    """Write lines, given without their newlines; returns their number. Errors as `replacing`."""
    written = 0
    with writing_lines(out) as write:
        for line in lines:
            write(line + b"\n")
            written += 1
    return written
