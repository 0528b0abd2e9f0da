"""Find episodes, in an order and up to a number, fast also among a million.

A database chooses how to go through its rows by statistics, of which SQLite has little. For SQLite
it is chosen here, by counting: if a filter lets few episodes pass (counted up to `FEW`, by an
index), the others are applied to these. If none does, the episodes are visited in the order of the
answer, by an index with all that is compared, until enough are found. A ``+`` before a column tells
SQLite to use no index of it.
"""

import hashlib
import heapq
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from attrs import frozen
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    func,
    literal_column,
    or_,
    select,
    text,
    union,
)
from sqlalchemy.exc import OperationalError

from ale.errors import InputError
from ale.strict import nearest
from ale_look.store import schema
from ale_look.store.listing import Order, RunFilters, chosen_runs
from ale_look.store.patterns import compiled, out_of_time, split_pattern

FEW = 2000
FEW_WITH_TEXT = 15_000
"""More: whether one episode has a word is asked of the index of words, which takes longer."""
_MOST_MATCHED = 64
"""Episodes whose turns are matched by one query."""
_E = schema.episodes.c
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Characters of scripts without spaces between words, such as Chinese: an index of words has whole
sentences of them.
"""

Column = Callable[[str], ColumnElement[Any]]
ALL_RUNS = RunFilters()


@frozen(kw_only=True)
class Filters:
    """Which episodes; None lets all pass. All that is given has to hold."""

    of: RunFilters = ALL_RUNS
    """Their runs."""
    prompt: str | None = None
    """Part of the task's prompt, in any case."""
    task: str | None = None
    """Id of the task."""
    model: str | None = None
    worker: str | None = None
    """Name of the process that ran it for a run elsewhere."""
    split: str | None = None
    step: int | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    broken: bool | None = None
    after: float | None = None
    """Started at or after, in seconds since the epoch."""
    before: float | None = None
    """Started before."""
    stop: str | None = None
    """Why the agent stopped."""
    tool: str | None = None
    """A tool that was called."""
    tool_failed: str | None = None
    """A tool of which a call failed."""
    error: str | None = None
    """Part of the error of the episode or of a tool call, in any case."""
    failed: str | None = None
    """Only episodes that failed this criterion."""
    text: str | None = None
    """Words of which one turn has all; those in double quotes in this order. Of scripts without
    spaces between words, such as Chinese, parts of the text. ``/PATTERN/`` is a regular expression
    that one turn matches, see `ale_look.store.patterns`.
    """
    also: Sequence[int] = ()
    """Numbers of episodes that pass `text` whatever their turns say."""


@frozen
class _Condition:
    """One filter."""

    holds: Callable[[Column], ColumnElement[bool]]
    """The condition on an episode, given how its columns are written."""
    ids: Select[Any] | CompoundSelect[Any] | None = None
    """The episodes that pass, where an index has them."""
    few: int = FEW
    """Number of them below which this is cheaper than to visit all in order."""
    matched: bool = False
    """It takes the text of every turn."""


def _indexed(holds: Callable[[Column], ColumnElement[bool]]) -> _Condition:
    return _Condition(holds, select(_E.id).where(holds(_plainly)))


def _plainly(name: str) -> ColumnElement[Any]:
    return _E[name]


def _without_index(name: str) -> ColumnElement[Any]:
    return literal_column(f"+episodes.{name}", _E[name].type)


def find(
    connection: Connection, filters: Filters, order: Order = "newest", limit: int = 20
) -> list[dict[str, Any]]:
    """The first `limit` episodes in this order, as columns of `episodes`, their run and prompt.

    ``best`` and ``worst`` leave out broken ones. Within `time_limit` there may be fewer, if a
    regular expression is asked for.
    """
    # Those are last: they are matched in the order of the answer, and not before it is known.
    conditions = [each for each in _conditions(connection, filters) if not each.matched]
    if order in ("best", "worst"):
        conditions.append(_Condition(lambda column: column("reward").is_not(None)))
    query = select(schema.episodes)
    if connection.dialect.name == "sqlite":
        query = _as_sqlite_likes_it(connection, query, conditions, order)
    else:
        query = query.where(*(each.holds(_plainly) for each in conditions))
        query = query.order_by(*_ordered(order, _plainly))
    pattern = None if filters.text is None else split_pattern(filters.text).pattern
    if pattern is None:
        rows = [dict(row) for row in connection.execute(query.limit(limit)).mappings()]
    else:
        rows = [*islice(_matching_rows(connection, query, pattern, filters.also), limit)]
    return _with_names(connection, rows)


def _matching_rows(
    connection: Connection, query: Select[Any], pattern: str, also: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """The rows of episodes that a regular expression matches, until a limit of time has come."""
    turns, found = schema.turns.c, connection.execute(query).mappings()
    size = 1
    while batch := found.fetchmany(size):
        size = min(2 * size, _MOST_MATCHED)
        which = turns.episode.in_([row["id"] for row in batch])
        asked = select(turns.episode).where(which, func.matches(pattern, turns.text))
        try:
            matched = {*connection.scalars(asked), *also}
        except OperationalError:
            if out_of_time():
                return
            raise
        yield from (dict(row) for row in batch if row["id"] in matched)


def _as_sqlite_likes_it(
    connection: Connection, query: Select[Any], conditions: Sequence[_Condition], order: Order
) -> Select[Any]:
    fewest, first = math.inf, None
    for each in conditions:
        if each.ids is not None:
            n = _count(connection, each.ids.limit(each.few))
            if n < min(fewest, each.few):
                fewest, first = n, each
    if first is not None and first.ids is not None:
        others = (each.holds(_without_index) for each in conditions if each is not first)
        query = query.where(_E.id.in_(first.ids), *others)
        return query.order_by(*_ordered(order, _without_index))
    leading = "reward" if order in ("best", "worst") else "started"

    def visited(name: str) -> ColumnElement[Any]:
        return _plainly(name) if name == leading else _without_index(name)

    query = query.where(*(each.holds(visited) for each in conditions))
    return query.order_by(*_ordered(order, _plainly))


def _count(connection: Connection, rows: Select[Any] | CompoundSelect[Any]) -> int:
    return connection.scalar(select(func.count()).select_from(rows.subquery())) or 0


def _ordered(order: Order, column: Column) -> Sequence[ColumnElement[Any]]:
    if order == "oldest":
        return column("started").asc(), column("id").asc()
    newest = (column("started").desc(), column("id").desc())
    if order == "newest":
        return newest
    reward = column("reward")
    return (reward.desc() if order == "best" else reward.asc(), *newest)


def _with_names(connection: Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    runs, tasks = schema.runs.c, schema.tasks.c
    which = runs.id.in_({row["run"] for row in rows})
    described = connection.execute(select(runs.id, runs.run_id, runs.path).where(which))
    run_of = {number: (run_id, path) for number, run_id, path in described}
    whose = tasks.id.in_({row["task"] for row in rows})
    prompts = connection.execute(select(tasks.id, tasks.prompt).where(whose))
    prompt_of = {number: prompt for number, prompt in prompts}
    for row in rows:
        row["run_id"], row["path"] = run_of[row["run"]]
        row["prompt"] = prompt_of[row["task"]]
    return rows


def every(connection: Connection, filters: Filters) -> Select[Any]:
    """The ids of all episodes that pass, as a query, in no order."""
    conditions = _conditions(connection, filters)
    return select(_E.id).where(*(each.holds(_plainly) for each in conditions))


def numbered(ids: Iterable[int]) -> Select[Any]:
    """These ids, as a query."""
    return select(_E.id).where(_E.id.in_([*ids]))


def sample(connection: Connection, filters: Filters, limit: int, seed: int) -> list[dict[str, Any]]:
    """Episodes chosen at random: those whose ids have the smallest hashes with the seed.

    So the same seed chooses the same episodes in every database, in any order of indexing; and of a
    sample, episodes that are added or removed later change only themselves.
    """
    runs = schema.runs.c
    query = select(_E.id, runs.run_id, _E.episode_id).join(schema.runs, runs.id == _E.run)
    found = connection.execute(query.where(_E.id.in_(every(connection, filters))))
    chosen = heapq.nsmallest(limit, ((_hash(seed, run, id_), n) for n, run, id_ in found))
    which = _E.id.in_([number for _, number in chosen])
    rows = {
        row["id"]: dict(row)
        for row in connection.execute(select(schema.episodes).where(which)).mappings()
    }
    return _with_names(connection, [rows[number] for _, number in chosen])


def _hash(seed: int, run_id: str, episode_id: str) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{run_id}\x1f{episode_id}".encode()).digest()


def _conditions(connection: Connection, filters: Filters) -> Iterator[_Condition]:
    yield from _of_the_run(filters)
    yield from _of_the_row(filters)
    yield from _of_the_parts(filters)
    if filters.text is not None:
        words, pattern = split_pattern(filters.text)
        sqlite = connection.dialect.name == "sqlite"
        found = [_with_text(words, sqlite)] if words or pattern is None else []
        found += [] if pattern is None else [_matching(pattern, sqlite)]
        for each in found:
            yield _or_one_of(each, filters.also) if filters.also else each


def _of_the_run(filters: Filters) -> Iterator[_Condition]:
    if filters.of != ALL_RUNS:
        runs = select(schema.runs.c.id).where(chosen_runs(filters.of))
        yield _indexed(lambda column: column("run").in_(runs))
    if filters.prompt is not None:
        tasks = schema.tasks.c
        asked = select(tasks.id).where(tasks.prompt.icontains(filters.prompt, autoescape=True))
        yield _indexed(lambda column: column("task").in_(asked))
    if filters.task is not None:
        named = select(schema.tasks.c.id).where(schema.tasks.c.task_id == filters.task)
        yield _indexed(lambda column: column("task").in_(named))


def _of_the_row(filters: Filters) -> Iterator[_Condition]:
    yield from _between("reward", filters.min_reward, filters.max_reward, last=True)
    yield from _between("started", filters.after, filters.before, last=False)
    if filters.broken is not None:
        yield _indexed(lambda column: column("reward").is_(None) == filters.broken)
    for name in ("model", "worker", "split", "step", "stop"):
        if getattr(filters, name) is not None:
            yield _indexed(partial(_equal, name, getattr(filters, name)))


def _equal(name: str, value: object, column: Column) -> ColumnElement[bool]:
    return column(name) == value


def _between(
    name: str, least: float | None, most: float | None, *, last: bool
) -> Iterator[_Condition]:
    """A range; with `last`, its end belongs to it."""
    if least is None and most is None:
        return

    def holds(column: Column) -> ColumnElement[bool]:
        value = column(name)
        ends = [] if least is None else [value >= least]
        if most is not None:
            ends.append(value <= most if last else value < most)
        return and_(*ends)

    yield _indexed(holds)


def _of_the_parts(filters: Filters) -> Iterator[_Condition]:
    if filters.tool is not None:
        tools = schema.tools.c
        yield _part(tools.episode, tools.tool == filters.tool)
    if filters.tool_failed is not None:
        tools = schema.tools.c
        yield _part(tools.episode, (tools.tool == filters.tool_failed) & (tools.n_errors > 0))
    if filters.failed is not None:
        scores = schema.scores.c
        failed = (scores.criterion == filters.failed) & scores.passed.is_(False)
        yield _part(scores.episode, failed)
    if filters.error is not None:
        errors, had = schema.errors.c, schema.episode_errors.c
        meant = select(errors.id).where(errors.text.icontains(filters.error, autoescape=True))
        yield _part(had.episode, had.error.in_(meant))


def _part(episode: ColumnElement[int], condition: ColumnElement[bool]) -> _Condition:
    """A condition on the rows of an episode in another table."""
    one = select(episode).where(episode == _E.id, condition).correlate(schema.episodes).exists()
    return _Condition(lambda _: one, select(episode).where(condition))


def _matching(pattern: str, sqlite: bool) -> _Condition:
    """Episodes of which one turn matches a regular expression: no index finds them."""
    compiled(pattern)
    if not sqlite:
        message = "regular expressions are for a database in a file; this one is of PostgreSQL"
        raise InputError.of(message, path="text", hint="search for words, or name a file: --store")
    turns = schema.turns.c
    found = select(turns.id).where(turns.episode == _E.id, func.matches(pattern, turns.text))
    exists = found.correlate(schema.episodes).exists()
    return _Condition(lambda _: exists, matched=True)


def _with_text(words: str, sqlite: bool) -> _Condition:
    phrases = phrases_of(words)
    if not phrases:
        raise InputError.of(f"there is no word in {words!r}", file="--text")
    turns = schema.turns.c
    unspaced = [phrase for phrase in phrases if _UNSPACED.search("".join(phrase))]
    indexed = [phrase for phrase in phrases if phrase not in unspaced]
    holds: list[ColumnElement[bool]] = [
        turns.text.ilike(f"%{'%'.join(phrase)}%") for phrase in unspaced
    ]
    tables: list[Any] = [schema.turns]
    if indexed and sqlite:
        asked = text("turn_words MATCH :wanted").bindparams(
            wanted=" ".join(f'"{" ".join(phrase)}"' for phrase in indexed)
        )
        rowid: ColumnElement[int] = literal_column("turn_words.rowid")
        holds.append(and_(asked, rowid == turns.id))
        tables.append(text("turn_words"))
    elif indexed:
        simple: ColumnElement[str] = literal_column("'simple'::regconfig")
        queries = [func.phraseto_tsquery(simple, " ".join(phrase)) for phrase in indexed]
        holds += (literal_column("turns.words").op("@@")(query) for query in queries)
    one = select(turns.id).select_from(*tables).where(turns.episode == _E.id, *holds)
    several = select(turns.episode).select_from(*tables).where(*holds)
    exists = one.correlate(schema.episodes).exists()
    return _Condition(lambda _: exists, several if indexed else None, FEW_WITH_TEXT)


def _or_one_of(condition: _Condition, numbers: Sequence[int]) -> _Condition:
    """A condition that these episodes pass too."""

    def holds(column: Column) -> ColumnElement[bool]:
        return or_(condition.holds(column), column("id").in_(numbers))

    ids = condition.ids
    both = None if ids is None else union(ids, numbered(numbers))
    return _Condition(holds, both, condition.few, condition.matched)


def phrases_of(wanted: str) -> list[list[str]]:
    """The words of each phrase: ``no "such file"`` is ``[["no"], ["such", "file"]]``.

    A word is letters and digits in a row, so ``main.py`` is the phrase of its two words.
    """
    parts = re.findall(r'"([^"]*)"|(\S+)', wanted)
    found = (_WORD.findall((quoted or word).lower()) for quoted, word in parts)
    return [words for words in found if words]


def pattern_of(phrase: Sequence[str]) -> re.Pattern[str]:
    """Finds a phrase of `phrases_of` in a text where the database does: as whole words."""
    words = r"[\W_]+".join(map(re.escape, phrase))
    unspaced = _UNSPACED.search("".join(phrase))
    return re.compile(words if unspaced else rf"(?<![^\W_]){words}(?![^\W_])", re.IGNORECASE)


def check_names(connection: Connection, filters: Filters) -> None:
    """Refuse a name that no episode has: a misspelt one would only find nothing.

    Raises:
        InputError: no episode was scored by the criterion, or called the tool.
    """
    scored, called = schema.scores.c.criterion, schema.tools.c.tool
    for path, column, wanted in (
        ("failed", scored, filters.failed),
        ("tool", called, filters.tool),
        ("tool_failed", called, filters.tool_failed),
    ):
        there = select(select(column).where(column == wanted).exists())
        if wanted is None or connection.scalar(there):
            continue
        known = connection.scalars(select(column).distinct()).all()
        what = "criterion" if column is scored else "tool"
        hint = nearest(wanted, known)
        raise InputError.of(f"no episode has the {what} '{wanted}'", path=path, hint=hint)


def columns_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for output: without the database's own numbers."""
    inner = {"id", "run", "task", "line_at"}
    return {key: value for key, value in row.items() if key not in inner}
