"""Write rows. Each function is called in a transaction of the one writer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Table, case, delete, func, insert, select, update

from ale.runs import SUCCESS, RunReader
from ale.types import Episode, Task
from ale_look.store import schema
from ale_look.store.rows import (
    Row,
    digest,
    episode_row,
    errors_of,
    number,
    plain,
    score_rows,
    task_row,
    tool_rows,
    turn_rows,
)

T = TypeVar("T")
Add: TypeAlias = Callable[[Connection, int, Sequence[tuple[int, T]], RunReader], None]
_AT_ONCE = 500
"""Values in one condition ``IN (...)``; databases limit their number."""

_SCALE = 2.0**600
"""Rewards are divided by it for their mean: the sum of some near 1e308 overflows, and PostgreSQL
computes squares with its means. The division is exact for rewards above 1e-127."""


def _id_of(connection: Connection, host: str, path: str) -> int | None:
    """The id of a run: by its path in SQLite, whose file lies beside it, else by host and path."""
    runs = schema.runs.c
    query = select(runs.id).where(runs.path == path)
    if connection.dialect.name != "sqlite":
        query = query.where(runs.host == host)
    return connection.scalar(query)


def put_run(connection: Connection, *, host: str, path: str, **values: Any) -> int:
    """Insert or update a run; its id."""
    table, values = schema.runs, {"host": host, **values}
    run = _id_of(connection, host, path)
    if run is not None:
        connection.execute(update(table).where(table.c.id == run).values(**values))
        return run
    run = _next_id(connection, table)
    none = dict.fromkeys(("n_episodes", "n_broken", "n_graded", "n_succeeded"), 0)
    connection.execute(insert(table).values(id=run, path=path, **values, **none))
    return run


def remove_run(connection: Connection, host: str, path: str) -> None:
    """Remove a run and all that is known of it, with the tasks and errors of no other run."""
    runs, episodes = schema.runs.c, schema.episodes.c
    run = _id_of(connection, host, path)
    used = schema.run_tasks.c
    tasks = connection.scalars(select(used.task).where(used.run == run).distinct()).all()
    had = schema.episode_errors.c
    query = select(had.error).join(schema.episodes, had.episode == episodes.id)
    errors = connection.scalars(query.where(episodes.run == run).distinct()).all()
    connection.execute(delete(schema.runs).where(runs.id == run))
    for table, ids, user in ((schema.tasks, tasks, used.task), (schema.errors, errors, had.error)):
        for i in range(0, len(ids), _AT_ONCE):
            part = table.c.id.in_(ids[i : i + _AT_ONCE])
            unused = ~select(user).where(user == table.c.id).exists()
            connection.execute(delete(table).where(part, unused))


def outdate_files(connection: Connection, host: str, path: str) -> None:
    """Mark what was read of a run's files as read from other files, which are read again."""
    other = {"size": -1, "modified_ns": -1, "line_at": 0, "line_sha256": ""}
    table = schema.files
    run = _id_of(connection, host, path)
    connection.execute(update(table).where(table.c.run == run).values(**other))


def put_settings(connection: Connection, run: int, settings: Mapping[str, str]) -> None:
    """Replace the settings of a run."""
    rows = [{"key": key, "value": value} for key, value in settings.items()]
    _replace(connection, schema.settings, run, rows)


def put_tags(connection: Connection, run: int, tags: Iterable[str]) -> None:
    """Replace the tags of a run."""
    _replace(connection, schema.tags, run, [{"tag": tag} for tag in tags])


def _replace(connection: Connection, table: Table, run: int, rows: Sequence[Row]) -> None:
    connection.execute(delete(table).where(table.c.run == run))
    if rows:
        connection.execute(insert(table), [{"run": run, **row} for row in rows])


def put_tasks(connection: Connection, run: int, split: str, rows: Sequence[Row]) -> None:
    """Replace the tasks of a run."""
    table = schema.run_tasks
    connection.execute(delete(table).where(table.c.run == run, table.c.split == split))
    ids = _ids_of(connection, schema.tasks, {row["sha256"]: row for row in rows})
    of = {row["task_id"]: ids[row["sha256"]] for row in rows}
    if of:
        values = [{"run": run, "split": split, "task_id": i, "task": t} for i, t in of.items()]
        connection.execute(insert(table), values)


def _ids_of(connection: Connection, table: Table, rows: Mapping[str, Row]) -> dict[str, int]:
    """The ids of rows by their SHA-256; those that are not there yet are inserted."""
    found: dict[str, int] = {}
    wanted = [*rows]
    for i in range(0, len(wanted), _AT_ONCE):
        part = table.c.sha256.in_(wanted[i : i + _AT_ONCE])
        for sha256, number_ in connection.execute(select(table.c.sha256, table.c.id).where(part)):
            found[sha256] = number_
    missing = [row for sha256, row in rows.items() if sha256 not in found]
    new = _numbered(connection, table, missing)
    return {**found, **{row["sha256"]: row["id"] for row in new}}


def _next_id(connection: Connection, table: Table) -> int:
    return (connection.scalar(select(func.max(table.c.id))) or 0) + 1


def _numbered(connection: Connection, table: Table, rows: Sequence[Row]) -> list[Row]:
    """Insert rows with the next ids; the rows with their ids."""
    if not rows:
        return []
    first = _next_id(connection, table)
    numbered = [{"id": first + i, **row} for i, row in enumerate(rows)]
    connection.execute(insert(table), numbered)
    return numbered


def add_episodes(
    connection: Connection, run: int, lines: Sequence[tuple[int, Episode]], reader: RunReader
) -> None:
    """Add episodes; one that is there already is replaced, as a later line replaces it."""
    latest = {episode.id: (offset, episode) for offset, episode in lines}
    table = schema.episodes
    ids = [*latest]
    for i in range(0, len(ids), _AT_ONCE):
        old = table.c.episode_id.in_(ids[i : i + _AT_ONCE])
        connection.execute(delete(table).where(table.c.run == run, old))
    tasks = _tasks_of(connection, run, (episode for _, episode in latest.values()))
    model = _configured_model(reader.manifest["config"])
    rows = [
        {
            **episode_row(episode, model),
            "run": run,
            "task": tasks[episode.split, plain(episode.task_id)],
            "line_at": offset,
        }
        for offset, episode in latest.values()
    ]
    of = [row["id"] for row in _numbered(connection, table, rows)]
    parts = [*zip(of, (episode for _, episode in latest.values()), strict=True)]
    _numbered(connection, schema.turns, _each(parts, turn_rows))
    for part, rows_of in ((schema.scores, score_rows), (schema.tools, tool_rows)):
        if made := _each(parts, rows_of):
            connection.execute(insert(part), made)
    _add_errors(connection, parts)


def _each(parts: Iterable[tuple[int, Episode]], rows_of: Callable[[Episode], Any]) -> list[Row]:
    return [{"episode": id_, **row} for id_, episode in parts for row in rows_of(episode)]


def _add_errors(connection: Connection, parts: Iterable[tuple[int, Episode]]) -> None:
    texts = {id_: errors_of(episode) for id_, episode in parts}
    different = {digest(text): text for found in texts.values() for text in found}
    rows = {sha256: {"sha256": sha256, "text": text} for sha256, text in different.items()}
    ids = _ids_of(connection, schema.errors, rows)
    made = [
        {"episode": id_, "error": ids[digest(text)]}
        for id_, found in texts.items()
        for text in found
    ]
    if made:
        connection.execute(insert(schema.episode_errors), made)


def _tasks_of(
    connection: Connection, run: int, episodes: Iterable[Episode]
) -> dict[tuple[str, str], int]:
    """The tasks of a run by split and id, also those that only its episodes name."""
    table = schema.run_tasks
    query = select(table.c.split, table.c.task_id, table.c.task).where(table.c.run == run)
    found = {(split, task_id): task for split, task_id, task in connection.execute(query)}
    named = {(episode.split, plain(episode.task_id)) for episode in episodes}
    if unknown := named - found.keys():
        rows = {key: task_row(Task(id=key[1], goal="")) for key in unknown}
        ids = _ids_of(connection, schema.tasks, {row["sha256"]: row for row in rows.values()})
        new = {key: ids[row["sha256"]] for key, row in rows.items()}
        values = [{"run": run, "split": s, "task_id": i, "task": t} for (s, i), t in new.items()]
        connection.execute(insert(table), values)
        found |= new
    return found


def _configured_model(config: Mapping[str, Any]) -> str:
    llm = config.get("llm") or {}
    return str(llm.get("model") or str(llm.get("type", "")).rpartition("/")[2])


def add_events(
    connection: Connection,
    run: int,
    lines: Sequence[tuple[int, dict[str, Any]]],
    reader: RunReader,
) -> None:
    """Add the steps and evaluations among the events of a run."""
    steps = {event["step"]: event for _, event in lines if event.get("event") == "step_finished"}
    for table in (schema.steps, schema.metrics):
        connection.execute(delete(table).where(table.c.run == run, table.c.step.in_([*steps])))
    rows = [{"run": run, "step": step, "at": event["at"]} for step, event in steps.items()]
    values = [
        {"run": run, "step": step, "name": name, "value": number(value)}
        for step, event in steps.items()
        for name, value in (event.get("metrics") or {}).items()
    ]
    for table, made in ((schema.steps, rows), (schema.metrics, values)):
        if made:
            connection.execute(insert(table), made)
    for _, event in lines:
        if event.get("event") == "evaluation_finished":
            _add_evaluation(connection, run, event)


def _add_evaluation(connection: Connection, run: int, event: Mapping[str, Any]) -> None:
    """Add an evaluation; a resume may have made one again."""
    table = schema.evaluations
    given = {column.name: event.get(column.name) for column in table.c if column.name != "run"}
    same = (table.c.run == run) & (table.c.step == given["step"])
    at = table.c.temperature.is_not_distinct_from(given["temperature"])
    connection.execute(delete(table).where(same, at))
    connection.execute(insert(table).values(run=run, **given))


def remove_lines(connection: Connection, run: int, name: str) -> None:
    """Remove what was read from one file of a run."""
    read = {
        "episodes.jsonl": (schema.episodes,),
        "events.jsonl": (schema.steps, schema.metrics, schema.evaluations),
    }
    for table in read[name]:
        connection.execute(delete(table).where(table.c.run == run))


def count_episodes(connection: Connection, run: int) -> None:
    """Count a run's episodes.

    As in the outcome of a run, what is graded and succeeded is counted of training episodes that
    began where their task begins.
    """
    table = schema.episodes.c
    own = (table.split == "train") & (table.start == "")
    graded = own & table.reward.is_not(None)
    succeeded = graded & (table.reward == SUCCESS)
    query = select(
        func.count(),
        func.coalesce(func.sum(case((table.reward.is_(None), 1), else_=0)), 0),
        func.coalesce(func.sum(case((graded, 1), else_=0)), 0),
        func.coalesce(func.sum(case((succeeded, 1), else_=0)), 0),
        func.avg(case((graded, table.reward / _SCALE))) * _SCALE,
    ).where(table.run == run)
    names = ("n_episodes", "n_broken", "n_graded", "n_succeeded", "mean_reward")
    counted = connection.execute(query).one()
    values = dict(zip(names, counted, strict=True))
    connection.execute(update(schema.runs).where(schema.runs.c.id == run).values(**values))
