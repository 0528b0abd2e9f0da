"""Files of rows in their three forms: JSON Lines, Parquet, a folder of Hugging Face datasets."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from ale.errors import InputError
from ale_rows.reading import RowFile
from ale_rows.rows import RowT
from ale_rows.tables import read_table, write_dataset, write_parquet
from ale_rows.writing import encode, write_lines

Form = Literal["jsonl", "parquet", "datasets"]


def read_rows(path: Path, kind: type[RowT]) -> Iterator[RowT]:
    """The rows of a file, one in memory at a time.

    Args:
        path: JSON Lines; for DPO, SFT and RL rows also a ``.parquet`` file or the folder of a
            Hugging Face data set.

    Raises:
        InputError: with file, line and path: it does not exist, or a line is damaged, of another
            kind or of an unsupported version.
        NotUsableError: pyarrow or datasets is needed and not installed.
    """
    if path.is_dir() or path.suffix == ".parquet":
        yield from read_table(path, kind)
        return
    with RowFile(path, kind) as file:
        for _, row in file:
            yield row


def write_rows(rows: Iterable[Any], out: Path, kind: type[Any], *, form: Form | None = None) -> int:
    """Write rows as a stream; returns their number.

    Args:
        out: a file, or for ``datasets`` a folder, which is replaced. It is unchanged if something
            fails.
        kind: class of the rows.
        form: None picks it by the suffix of `out`: ``.jsonl``, ``.parquet``, or none for
            ``datasets``, the folder that ``datasets.load_from_disk`` reads.

    Raises:
        InputError: the suffix is unknown.
        NotUsableError: pyarrow or datasets is needed and not installed.
        StoreError: it can't be written.
    """
    form = form or form_of(out)
    if form == "jsonl":
        return write_lines(map(encode, rows), out)
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
    raise InputError.of(message, path="out", expected=expected)
