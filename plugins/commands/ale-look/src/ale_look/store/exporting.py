"""Write what was found to files: rows of episodes for data sets, tables as Parquet."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer, Select, Table, select

from ale.errors import InputError, StoreError
from ale.runs import Lines, RunReader
from ale.types import Episode
from ale_look.store import schema
from ale_rows import EpisodeRow, crediting_of, write_rows
from ale_rows.tables import optional
from ale_rows.writing import replacing

_ROWS = 10_000
TABLES = (
    *("runs", "settings", "tags", "tasks", "steps", "metrics", "evaluations", "episodes"),
    *("turns", "scores", "tools", "episode_errors", "errors"),
)


def export(connection: Connection, ids: Select[Any], out: Path) -> int:
    """Write episodes; their number.

    Args:
        ids: a query for the ids of the episodes.
        out: a ``.jsonl`` file: whole episodes, as `ale data score` and `ale data` read them; a
            ``.parquet`` file: their rows of the table `episodes`; or, without a suffix, a folder
            with a Parquet file of each table, with the rows that belong to these episodes. A
            folder that exists is replaced if it holds nothing but such files.

    Raises:
        InputError: another suffix; what exists is not replaced; or a run directory no longer has
            an episode.
        NotUsableError: pyarrow is needed and not installed.
        StoreError: something can't be written.
    """
    if out.suffix == ".jsonl":
        return write_rows(_whole(connection, ids), out, EpisodeRow)
    if out.suffix not in (".parquet", ""):
        message = f"'{out.suffix}' is not the suffix of a known form"
        expected = ".jsonl, .parquet, or no suffix for a folder of Parquet files"
        raise InputError.of(message, file="--out", expected=expected)
    optional("pyarrow")
    if out.suffix:
        with replacing(out) as partial:
            return _write_table(connection, schema.episodes, ids, partial)
    _refuse_other_content(out)
    with replacing(out, folder=True) as partial:
        for name in TABLES:
            table = schema.metadata.tables[name]
            n = _write_table(connection, table, ids, partial / f"{name}.parquet")
            if name == "episodes":
                written = n
    return written


def _refuse_other_content(out: Path) -> None:
    """Refuse an output that exists and is not a folder of exported tables."""
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        message = f"{out} exists and is not a folder; it is not replaced"
    else:
        known = {f"{name}.parquet" for name in TABLES}
        found = out.iterdir()
        others = sorted(each.name for each in found if each.name not in known or each.is_dir())
        if not others:
            return
        message = f"{out} holds {others[0]}, which is no exported table; it is not replaced"
    raise InputError.of(message, file="--out", hint="choose another name")


def _whole(connection: Connection, ids: Select[Any]) -> Iterator[EpisodeRow]:
    """The episodes, from their run directories, in the order of their lines."""
    runs, table = schema.runs.c, schema.episodes.c
    query = select(runs.run_id, runs.path, table.line_at, table.episode_id)
    query = query.join(schema.runs, runs.id == table.run).where(table.id.in_(ids))
    found = connection.execute(query.order_by(runs.run_id, table.run, table.line_at))

    @cache
    def crediting(run: str) -> Mapping[str, Any] | None:
        return crediting_of(RunReader(Path(run)).manifest)

    for run_id, path, line_at, episode_id in found:
        lines = Lines(Path(path) / "episodes.jsonl", Episode)
        try:
            episode = lines.at(line_at)
        except OSError as error:
            raise StoreError(f"{lines.path} can't be read: {error.strerror}") from error
        if episode.id != episode_id:
            message = f"the episode {episode_id} is no longer where it was"
            hint = "somebody has edited the file; ale runs index --rebuild reads it again"
            raise InputError.of(message, file=str(lines.path), hint=hint)
        yield EpisodeRow(run=run_id, crediting=crediting(path), episode=episode)


def _write_table(connection: Connection, table: Table, ids: Select[Any], path: Path) -> int:
    arrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    columns = arrow.schema([(column.name, _type(arrow, column.type)) for column in table.c])
    written = 0
    with parquet.ParquetWriter(path, columns, compression="zstd") as writer:
        query = select(table).where(_belongs(table, ids)).order_by(*table.primary_key)
        found = connection.execution_options(yield_per=_ROWS).execute(query)
        for rows in found.mappings().partitions(_ROWS):
            batch = [dict(row) for row in rows]
            writer.write_table(arrow.Table.from_pylist(batch, schema=columns))
            written += len(batch)
    return written


def _belongs(table: Table, ids: Select[Any]) -> Any:
    """The condition that a row belongs to one of the episodes, or to its run, task or error."""
    if table is schema.episodes:
        return table.c.id.in_(ids)
    if "episode" in table.c:
        return table.c.episode.in_(ids)
    episodes = schema.episodes.c
    if table is schema.tasks:
        return table.c.id.in_(select(episodes.task).where(episodes.id.in_(ids)))
    if table is schema.errors:
        had = schema.episode_errors.c
        return table.c.id.in_(select(had.error).where(had.episode.in_(ids)))
    key = table.c.id if table is schema.runs else table.c.run
    return key.in_(select(episodes.run).where(episodes.id.in_(ids)))


def _type(arrow: Any, kind: Any) -> Any:
    if isinstance(kind, Boolean):
        return arrow.bool_()
    if isinstance(kind, Float):
        return arrow.float64()
    return arrow.int64() if isinstance(kind, Integer | BigInteger) else arrow.string()
