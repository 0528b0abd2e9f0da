"""Which runs, and what they differ in."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import frozen
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, true

from ale.errors import InputError
from ale.runs import RunReader, holder
from ale.strict import nearest
from ale_look.store import schema

Order = Literal["newest", "oldest", "best", "worst"]
_R = schema.runs.c


@frozen(kw_only=True)
class RunFilters:
    """Which runs; nothing lets all pass. All that is given has to hold."""

    paths: Sequence[str] = ()
    """Run directories, and folders that hold some; one of them."""
    tags: Sequence[str] = ()
    """All of them."""
    where: Sequence[tuple[str, str]] = ()
    """Settings of the config: ``("credit.type", "grpo")``."""
    outcome: str | None = None
    """How it ended; ``none`` for a run without an outcome."""
    after: float | None = None
    """Created at or after, in seconds since the epoch."""
    before: float | None = None
    """Created before."""


def chosen_runs(filters: RunFilters) -> ColumnElement[bool]:
    """The condition on a row of `runs`."""
    tags, settings = schema.tags.c, schema.settings.c
    found: list[ColumnElement[bool]] = [true()]
    if filters.paths:
        found.append(or_(*map(_at_or_below, filters.paths)))
    for tag in filters.tags:
        found.append(_R.id.in_(select(tags.run).where(tags.tag == tag)))
    for key, value in filters.where:
        same = (settings.key == key) & settings.value.in_(_as_stored(value))
        found.append(_R.id.in_(select(settings.run).where(same)))
    if filters.outcome is not None:
        ended = None if filters.outcome == "none" else filters.outcome
        found.append(_R.outcome.is_not_distinct_from(ended))
    if filters.after is not None:
        found.append(_R.created >= filters.after)
    if filters.before is not None:
        found.append(_R.created < filters.before)
    return and_(*found)


def _as_stored(value: str) -> set[str]:
    """How the database may have written a setting's value: ``1.5e-3`` as ``0.0015``, and ``600`` as
    ``600.0`` where the option is a float.
    """
    try:
        number = float(value)
    except ValueError:
        return {value}
    whole = {str(int(number))} if number.is_integer() else set()
    return {value, json.dumps(number), *whole}


def unknown_settings(connection: Connection, filters: RunFilters) -> list[str]:
    """A message for each setting in `where` that no run has."""
    keys = schema.settings.c.key
    missing = [
        key
        for key, _ in filters.where
        if not connection.scalar(select(select(keys).where(keys == key).exists()))
    ]
    known = connection.scalars(select(keys).distinct()).all() if missing else ()
    hints = ((key, nearest(key, known)) for key in missing)
    return [
        f"no run has the setting '{key}'" + (f": {hint}" if hint else "") for key, hint in hints
    ]


def _at_or_below(path: str) -> ColumnElement[bool]:
    whole = str(Path(path).resolve())
    return (_R.path == whole) | _R.path.startswith(whole.rstrip(os.sep) + os.sep, autoescape=True)


def list_runs(
    connection: Connection, filters: RunFilters, order: Order = "newest", limit: int | None = None
) -> list[dict[str, Any]]:
    """The runs that pass, with their tags and how many of their passes are contested."""
    ordered = {
        "newest": (_R.created.desc(), _R.id.desc()),
        "oldest": (_R.created.asc(), _R.id.asc()),
        "best": (_R.mean_reward.desc(), _R.id.desc()),
        "worst": (_R.mean_reward.asc(), _R.id.asc()),
    }
    query = select(schema.runs).where(chosen_runs(filters)).order_by(*ordered[order])
    if order in ("best", "worst"):
        query = query.where(_R.mean_reward.is_not(None))
    rows = [dict(row) for row in connection.execute(query.limit(limit)).mappings()]
    tags = schema.tags.c
    of: dict[int, list[str]] = {}
    for run, tag in connection.execute(select(tags.run, tags.tag).order_by(tags.tag)):
        of.setdefault(run, []).append(tag)
    settings = schema.settings.c
    named = select(settings.run, settings.value).where(settings.key == "llm.model")
    models = {run: value for run, value in connection.execute(named) if value != "null"}
    models |= _named(connection, [row["id"] for row in rows if row["id"] not in models])
    contested = _contested(connection)
    return [
        {
            **row,
            "model": models.get(row["id"], ""),
            "tags": of.get(row["id"], []),
            "n_contested": contested.get(row["id"], 0),
        }
        for row in rows
    ]


def _named(connection: Connection, runs: Sequence[int]) -> dict[int, str]:
    """The models of the episodes of some runs."""
    episodes = schema.episodes.c
    query = select(episodes.run, episodes.model).where(episodes.run.in_(runs), episodes.model != "")
    found: dict[int, list[str]] = {}
    for run, model in connection.execute(query.distinct().order_by(*query.selected_columns)):
        found.setdefault(run, []).append(model)
    return {run: ", ".join(models) for run, models in found.items()}


def _contested(connection: Connection) -> dict[int, int]:
    """By run: graded episodes with a verdict that is contested, whatever it counts as."""
    scores, episodes = schema.scores.c, schema.episodes.c
    query = (
        select(episodes.run, func.count(episodes.id.distinct()))
        .join(schema.scores, scores.episode == episodes.id)
        .where(scores.contested.is_not(None), episodes.reward.is_not(None))
    )
    return {run: n for run, n in connection.execute(query.group_by(episodes.run))}


def this_host() -> str:
    """The machine's name in the database; ``ALE_HOST_NAME`` where its own one changes."""
    return os.environ.get("ALE_HOST_NAME") or platform.node()


def state(row: Mapping[str, Any], host: str) -> str:
    """``running`` or ``paused``, how the run ended, or ``interrupted``: its process is gone and did
    not say.

    Whether a process writes to a run can be told on the machine that has its directory; of one of
    another machine, which may be running, it is ``not ended``.
    """
    here = row["host"] == host
    if here and holder(Path(row["path"])) is not None:
        return "paused" if _paused(Path(row["path"])) else "running"
    return row["outcome"] or ("interrupted" if here else "not ended")


def _paused(path: Path) -> bool:
    try:
        return RunReader(path).paused
    except InputError:  # it has been removed since, or what it wrote is damaged, as its page says
        return False


def missing(row: Mapping[str, Any], host: str) -> int:
    """Episodes that a run had when it ended, and its file lacks; 0 for one of another machine."""
    if row["host"] != host or row["outcome"] is None:
        return 0
    try:
        ended = RunReader(Path(row["path"])).manifest.get("outcome") or {}
    except InputError:  # it has been removed since
        return 0
    return max(0, sum(int(ended.get(name, 0) - row[name]) for name in ("n_graded", "n_broken")))
