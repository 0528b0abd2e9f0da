"""Bring the database up to date with run directories, which it only reads.

Files of a run grow at their end, so only what was added since is read. A file whose last line that
was read is no longer there (a resume has removed episodes, or another run has the name) is read
again from its beginning.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from attrs import field, frozen
from sqlalchemy import Connection, delete, insert, select

from ale.errors import InputError, StoreError
from ale.files import open_file
from ale.runs import Lines, RunReader, runs_in
from ale_look.store import schema, writing
from ale_look.store.database import Database, UnfitError
from ale_look.store.listing import this_host
from ale_look.store.rows import epoch, plain, settings_of, task_row
from ale_look.store.tagging import TAGS, read_tags

T = TypeVar("T")
_MANIFEST = "manifest.json"
_TASKS = {"train": "tasks.jsonl", "evaluation": "evaluation_tasks.jsonl"}
_EPISODES = "episodes.jsonl"
_EVENTS = "events.jsonl"
_FILES = (_MANIFEST, TAGS, *_TASKS.values(), _EPISODES, _EVENTS)
_BATCH = 500
"""Lines that are read in one transaction; other processes can write between two."""

Stamp = tuple[int, int]
"""Size and time of modification in nanoseconds: where both are as before, a file is not read."""
_UNFINISHED: Stamp = (-1, -1)
"""Some of the file is left to read."""


@frozen(kw_only=True)
class Updated:
    """Numbers of the changes that an update made."""

    runs: int = 0
    """Runs that were read, of those that were found."""
    found: int = 0
    episodes: int = 0
    removed: int = 0
    """Runs in the database whose directory is gone."""
    problems: Sequence[str] = field(factory=tuple)
    """Runs, or parts of them, that can't be read, one message each."""


class _Position(NamedTuple):
    """The last line of a file that was read: where it starts, and its SHA-256."""

    line_at: int | None = None
    line_sha256: str | None = None


_START = _Position()


class Indexer:
    """Updates a database from run directories."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._host = this_host()

    def update(self, folder: Path) -> Updated:
        """Read what was added to the runs in a folder, at any depth, since the last update.

        Raises:
            StoreError: the database can't be written.
        """
        known = self._stamps()
        refused: list[OSError] = []
        paths = list(runs_in(folder, refused.append))
        n, episodes = 0, 0
        problems = [f"{each.filename} can't be read: {each.strerror}" for each in refused]
        for path in paths:
            try:
                if known.get(str(path)) == stamps_of(path):
                    continue
                episodes += self.update_run(path)
                n += 1
            except InputError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{error.filename or path} can't be read: {error.strerror}")
            except UnfitError as error:
                problems.append(f"{path} has a value that can't be stored: {error}")
            except StoreError:
                raise
            except Exception as error:  # one run never hides others
                problems.append(f"{path} can't be read: {type(error).__name__}: {error}")
        return Updated(
            runs=n,
            found=len(paths),
            episodes=episodes,
            removed=self._remove_missing(
                folder, {*map(str, paths)}, self._readable(known, refused)
            ),
            problems=problems,
        )

    def update_run(self, path: Path) -> int:
        """Read what was added to one run; the number of episodes.

        Raises:
            InputError: it is no run directory, or a line of it is damaged.
            StoreError: the database can't be written.
        """
        path = path.resolve()
        if plain(str(path)) != str(path):
            message = "a path that is not UTF-8 can't be stored in a database"
            raise InputError.of(message, file=plain(str(path)), hint="rename the folder")
        reader = RunReader(path)
        before = stamps_of(path)  # a file that grows meanwhile is read again next time
        with self._database.writing() as connection:
            run = self._describe(connection, reader, before)
            self._read_tasks(connection, run, reader, before)
        n = self._read_all(run, reader.episodes, writing.add_episodes, before, reader)
        self._read_all(run, reader.event_log, writing.add_events, before, reader)
        return n

    def _read_all(
        self,
        run: int,
        lines: Lines[T],
        add: "writing.Add[T]",
        stamps: Mapping[str, Stamp],
        reader: RunReader,
    ) -> int:
        """Read what was added to a file; the number of lines.

        A file may grow as fast as it is read: what comes after the end was seen waits.
        """
        n, added = 0, _BATCH
        while added == _BATCH:
            added = self._next(run, lines, add, stamps, reader)
            n += added
        return n

    def forget(self, paths: Sequence[Path]) -> None:
        """Remove runs from the database; their directories stay as they are."""
        with self._database.writing() as connection:
            for path in paths:
                writing.remove_run(connection, self._host, str(path.resolve()))

    def outdate(self, folder: Path) -> None:
        """Have the next update read all runs in a folder again; what is known of them stays until
        then, as others may be asking.
        """
        with self._database.writing() as connection:
            for path in _inside(folder, self._stamps()):
                writing.outdate_files(connection, self._host, path)

    def _stamps(self) -> dict[str, dict[str, Stamp]]:
        table = schema.files.c
        query = select(schema.runs.c.path, table.name, table.size, table.modified_ns)
        found: dict[str, dict[str, Stamp]] = {}
        query = query.join_from(schema.runs, schema.files, isouter=True)
        if not self._database.sqlite:  # another machine has directories of its own
            query = query.where(schema.runs.c.host == self._host)
        with self._database.reading() as connection:
            for path, name, size, modified in connection.execute(query):
                stamps = found.setdefault(path, {})
                if name is not None:
                    stamps[name] = (size, modified)
        return found

    def _readable(self, known: Iterable[str], refused: Iterable[OSError]) -> list[str]:
        """The known runs without those in folders that this user can't read, which may be there."""
        kept = {path for each in refused for path in _inside(Path(str(each.filename)), known)}
        return [path for path in known if path not in kept]

    def _remove_missing(self, folder: Path, found: set[str], known: Iterable[str]) -> int:
        gone = [Path(path) for path in _inside(folder, known) if path not in found]
        if gone:
            self.forget(gone)
        return len(gone)

    def _describe(
        self, connection: Connection, reader: RunReader, stamps: Mapping[str, Stamp]
    ) -> int:
        """Write what the manifest and the tags say; the run's number in the database."""
        manifest = reader.manifest
        outcome = manifest.get("outcome") or {}
        run = writing.put_run(
            connection,
            path=str(reader.path),
            host=self._host,
            run_id=str(manifest["run_id"]),
            created=epoch(str(manifest.get("created", ""))) or None,
            outcome=outcome.get("outcome"),
            seconds=outcome.get("seconds"),
            n_tasks=manifest["n_tasks"],
        )
        writing.put_settings(connection, run, settings_of(manifest["config"]))
        writing.put_tags(connection, run, read_tags(reader.path))
        for name in (_MANIFEST, TAGS):
            self._store(connection, run, name, stamps.get(name))
        return run

    def _read_tasks(
        self, connection: Connection, run: int, reader: RunReader, stamps: Mapping[str, Stamp]
    ) -> None:
        for split, lines in (("train", reader.tasks), ("evaluation", reader.evaluation_tasks)):
            name = _TASKS[split]
            if name not in stamps or self._read_until(connection, run, name)[0] == stamps[name]:
                continue
            writing.put_tasks(connection, run, split, [task_row(task) for task in lines])
            self._store(connection, run, name, stamps[name])

    def _next(
        self,
        run: int,
        lines: Lines[T],
        add: "writing.Add[T]",
        stamps: Mapping[str, Stamp],
        reader: RunReader,
    ) -> int:
        """Read the next lines of a file in one transaction; their number.

        Another process may have read them since, so each transaction looks where to begin.
        """
        name = lines.path.name
        with self._database.writing() as connection:
            _, position = self._read_until(connection, run, name)
            start = _end_of_line(lines.path, position)
            if start is None:
                writing.remove_lines(connection, run, name)
                start = 0
            batch = list(islice(lines.with_offsets(start), _BATCH))
            if batch:
                add(connection, run, batch, reader)
                last = batch[-1][0]
                position = _Position(last, _sha256(_line_at(lines.path, last)))
            elif start == 0:
                position = _START
            done = len(batch) < _BATCH
            seen = stamps.get(name, _UNFINISHED if batch else None)
            self._store(connection, run, name, seen if done else _UNFINISHED, position)
            if done and name == _EPISODES:
                writing.count_episodes(connection, run)
        return len(batch)

    def _read_until(
        self, connection: Connection, run: int, name: str
    ) -> tuple[Stamp | None, _Position]:
        """How far a file was read, as `_store` wrote it."""
        table = schema.files.c
        query = select(table.size, table.modified_ns, table.line_at, table.line_sha256)
        row = connection.execute(query.where(table.run == run, table.name == name)).first()
        return (None, _START) if row is None else ((row[0], row[1]), _Position(*row[2:]))

    def _store(
        self,
        connection: Connection,
        run: int,
        name: str,
        stamp: Stamp | None,
        position: _Position = _START,
    ) -> None:
        """Write how far a file was read; None: it is not there."""
        table = schema.files
        connection.execute(delete(table).where(table.c.run == run, table.c.name == name))
        if stamp is not None:
            values = {"run": run, "name": name, **position._asdict()}
            connection.execute(insert(table).values(size=stamp[0], modified_ns=stamp[1], **values))


def _inside(folder: Path, paths: Iterable[str]) -> list[str]:
    whole = str(folder.resolve())
    return [path for path in paths if path == whole or path.startswith(whole + os.sep)]


def stamps_of(path: Path) -> dict[str, Stamp]:
    """Size and time of each file of a run that the database has something of."""
    found = {}
    for name in _FILES:
        try:
            stat = (path / name).stat()
        except FileNotFoundError:
            continue
        found[name] = (stat.st_size, stat.st_mtime_ns)
    return found


def _end_of_line(path: Path, position: _Position) -> int | None:
    """Where the next line to read starts; None where the last one is no longer what it was."""
    if position.line_at is None:
        return 0
    try:
        line = _line_at(path, position.line_at)
    except FileNotFoundError:
        return None
    same = _sha256(line) == position.line_sha256
    return position.line_at + len(line) if same else None


def _line_at(path: Path, offset: int) -> bytes:
    with open_file(path) as file:
        file.seek(offset)
        return file.readline()


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
