"""Rows as Arrow tables: Parquet files, and folders of Hugging Face datasets.

Columns are those of the row's class. Tools, whose parameters have no fixed schema, are a column of
JSON text, as TRL reads it.
"""

import importlib
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ale.errors import InputError, NotUsableError
from ale_rows.reading import refused
from ale_rows.rows import KINDS, ChatTools, DpoRow, RlRow, SftRow
from ale_rows.writing import replacing

TABULAR = (DpoRow, SftRow, RlRow)
_JSON_COLUMN = "tools"
_BATCH = 256
"""Rows in memory at once; they form one row group of the file."""


_INSTALL = {
    "datasets": "pip install 'datasets>=3'",
    "pyarrow": "pip install 'pyarrow>=17'",
}


def optional(module: str) -> Any:
    """Import a package that only these forms need.

    Raises:
        NotUsableError: it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        message = f"{package} is needed for this form: {_INSTALL[package]}"
        raise NotUsableError(message) from error


def write_parquet(rows: Iterable[Any], out: Path, kind: type[Any]) -> int:
    """Write rows as one Parquet file; returns their number."""
    parquet, schema = optional("pyarrow.parquet"), arrow_schema(kind)
    with replacing(out) as partial, parquet.ParquetWriter(partial, schema) as writer:
        return _write(rows, writer, schema)


def write_dataset(rows: Iterable[Any], out: Path, kind: type[Any]) -> int:
    """Write rows as a folder for `datasets.load_from_disk`; returns their number."""
    datasets = optional("datasets")
    arrow, schema = optional("pyarrow"), arrow_schema(kind)
    datasets.disable_progress_bars()
    if out.exists() and not _is_data_set(out):
        message = f"{out} exists and is not a folder of one data set; it is not replaced"
        raise InputError.of(message, path="out", hint="choose another name")
    with replacing(out, folder=True) as partial:
        data = partial / "rows.arrow"
        with arrow.OSFile(str(data), "wb") as sink, arrow.ipc.new_stream(sink, schema) as writer:
            written = _write(rows, writer, schema)
        # Memory-mapped, so that data sets larger than memory work.
        made = datasets.Dataset.from_file(str(data))
        made.save_to_disk(str(partial / "made"))
        del made
        data.unlink()
        for path in (partial / "made").iterdir():
            path.rename(partial / path.name)
        (partial / "made").rmdir()
    return written


def _is_data_set(path: Path) -> bool:
    """Whether a folder holds a data set written by `write_dataset` and nothing else."""
    if not (path / "dataset_info.json").is_file():
        return False
    names = {each.name for each in path.iterdir() if each.suffix != ".arrow"}
    return names <= {"dataset_info.json", "state.json"}


def _write(rows: Iterable[Any], writer: Any, schema: Any) -> int:
    """Write rows in batches; returns their number."""
    arrow, iterator, written = optional("pyarrow"), iter(rows), 0
    while batch := [_plain(row) for row in islice(iterator, _BATCH)]:
        writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
        written += len(batch)
    return written


def _plain(row: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(row)
    tools = made.get(_JSON_COLUMN)
    made[_JSON_COLUMN] = None if tools is None else msgspec.json.encode(tools).decode()
    return made


def read_table(path: Path, kind: type[Any]) -> Iterator[Any]:
    """The rows of a Parquet file or of a folder of a data set.

    Raises:
        InputError: it is not a table, or a row is not of this kind.
        NotUsableError: pyarrow is not installed.
    """
    if kind not in TABULAR:
        raise InputError.of("rows of episodes are JSON Lines, not a table", file=str(path))
    for number, plain in enumerate(_plain_rows(path), 1):
        try:
            yield msgspec.convert(_whole(plain), kind)
        except (msgspec.MsgspecError, TypeError) as error:
            raise refused(msgspec.json.encode(plain), kind, error, path, number) from None


def table_kind(path: Path) -> str:
    """The `kind` of the rows of a table.

    Raises:
        InputError: their kind is unknown.
    """
    known = [kind for kind, cls in KINDS.items() if cls in TABULAR]
    for plain in _plain_rows(path):
        if plain.get("kind") in known:
            return str(plain["kind"])
        break
    raise InputError.of(f"not a table of rows; expected kind {' or '.join(known)}", file=str(path))


def _plain_rows(path: Path) -> Iterator[dict[str, Any]]:
    arrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    try:
        if path.is_dir():
            shards = sorted(path.glob("*.arrow"))
            # A data set without rows has no shards.
            if not shards and not _is_data_set(path):
                raise InputError.of("not a folder of a data set", file=str(path))
            for shard in shards:
                with arrow.memory_map(str(shard)) as source:
                    for batch in arrow.ipc.open_stream(source):
                        yield from batch.to_pylist()
            return
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                yield from batch.to_pylist()
    except (arrow.ArrowException, FileNotFoundError) as error:
        raise InputError.of(f"can't be read: {error}", file=str(path)) from None


def _whole(plain: dict[str, Any]) -> dict[str, Any]:
    """A row without the nulls that tables have for absent values."""
    tools = plain.get(_JSON_COLUMN)
    whole = {key: _without_nulls(value) for key, value in plain.items()}
    whole[_JSON_COLUMN] = msgspec.json.decode(tools) if isinstance(tools, str) else tools
    return whole


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return [_without_nulls(child) for child in value] if isinstance(value, list) else value


def arrow_schema(kind: type[Any]) -> Any:
    """The columns of a kind of row, a `pyarrow.Schema`."""
    arrow = optional("pyarrow")
    return arrow.schema(list(_fields(arrow, kind)))


def _fields(arrow: Any, kind: type[Any]) -> Iterator[Any]:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        made = arrow.string() if hint == ChatTools else _type(arrow, hint)
        yield arrow.field(field.encode_name, made)


def _type(arrow: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(arrow, arguments[0])
    if origin in (Union, types.UnionType):
        (member,) = [each for each in arguments if each is not type(None)]
        return _type(arrow, member)
    if origin is tuple:
        return arrow.list_(_type(arrow, arguments[0]))
    if origin is Literal:
        return _scalars(arrow)[type(arguments[0])]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return arrow.struct(list(_fields(arrow, hint)))
    return _scalars(arrow)[hint]


def _scalars(arrow: Any) -> Mapping[Any, Any]:
    return {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
    }
