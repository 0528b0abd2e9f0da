"""Write rows atomically, in one of three forms."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from ale.errors import InputError, Problem, StoreError

Form = Literal["jsonl", "parquet", "datasets"]

_encoder = msgspec.json.Encoder(enc_hook=str)


def write_rows(rows: Iterable[Any], out: Path, kind: type[Any], *, form: Form | None = None) -> int:
    """Write rows as a stream; returns their number.

    Args:
        out: a file, or for ``datasets`` a folder, which is replaced. It is unchanged if something
            fails.
        kind: their class.
        form: None picks it by the suffix of `out`: ``.jsonl``, ``.parquet``, or none for
            ``datasets``, the folder that ``datasets.load_from_disk`` reads.

    Raises:
        InputError: the suffix is unknown.
        NotUsableError: pyarrow or datasets is needed and not installed.
        StoreError: it can't be written.
    """
    form = form or form_of(out)
    if form == "jsonl":
        written = 0
        with writing_lines(out) as write:
            for row in rows:
                write(_encoder.encode(row) + b"\n")
                written += 1
        return written
    from ale_rows.tables import write_dataset, write_parquet

    if form == "parquet":
        return write_parquet(rows, out, kind)
    return write_dataset(rows, out, kind)


def form_of(out: Path) -> Form:
    """The form for a file name."""
    if out.suffix == ".parquet":
        return "parquet"
    if out.suffix in (".jsonl", ".json"):
        return "jsonl"
    if not out.suffix:
        return "datasets"
    message = f"'{out.suffix}' is not the suffix of a known form"
    expected = ".jsonl, .parquet, or no suffix for a folder of Hugging Face datasets"
    raise InputError([Problem(message=message, path="out", expected=expected)])


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
