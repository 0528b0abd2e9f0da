"""Which runs there are, by the keys that addresses name them by, and their rows of the database."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Integer, func, select

from ale.errors import AleError, InputError
from ale.intervals import success_interval
from ale.runs import SUCCESS, nearest_run, runs_in
from ale_look.store import schema
from ale_look.store.database import Database
from ale_look.store.indexing import Indexer
from ale_look.store.listing import RunFilters, list_runs
from ale_look.store.tables import with_states
from ale_look.view.keys import key_of


class Catalog:
    """The runs in a folder, at any depth."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder.resolve()
        self.database = database
        self.problems: Sequence[str] = ()
        """Messages of the last update about what could not be read."""
        self._updating: threading.Thread | None = None
        self._lock = threading.Lock()
        self._paths: dict[str, Path] = {}
        self.find()

    @property
    def filters(self) -> RunFilters:
        """Filters that let the runs of this folder pass."""
        return RunFilters(paths=[str(self.folder)])

    @property
    def only(self) -> str | None:
        """The key of the run, where the folder is one and not a folder of runs."""
        return next((key for key, path in self._paths.items() if path == self.folder), None)

    def find(self) -> Mapping[str, Path]:
        """Look which runs there are now; their paths by key."""
        # A folder that can't be read is named by the next update.
        found = runs_in(self.folder, lambda _: None)
        self._paths = {key_of(path, self.folder): path for path in found}
        return self._paths

    def path(self, key: str) -> Path:
        """The directory of a run.

        Raises:
            InputError: there is none of this key.
        """
        found = self._paths.get(key) or self.find().get(key)
        if found is None:
            hint = nearest_run(key, self._paths)
            raise InputError.of(f"no run '{key}'", file=str(self.folder), hint=hint)
        return found

    @property
    def reading(self) -> bool:
        """The database is being brought up to date."""
        return self._updating is not None and self._updating.is_alive()

    def refresh(self, patience_s: float = 0.4) -> None:
        """Bring the database up to date in a thread, and wait a moment for it.

        What is asked meanwhile is answered from what has been read so far.
        """
        with self._lock:
            if not self.reading:
                self._updating = threading.Thread(target=self.update, daemon=True)
                self._updating.start()
            updating = self._updating
        assert updating is not None
        updating.join(patience_s)

    def update(self) -> None:
        """Bring the database up to date."""
        try:
            self.problems = Indexer(self.database).update(self.folder).problems
        except AleError as error:
            self.problems = [str(error)]
        self.find()

    def rows(self) -> list[dict[str, Any]]:
        """The runs, newest first, with their state, success and its interval."""
        with self.database.reading() as connection:
            listed = list_runs(connection, self.filters)
            attempts = _attempts(connection)
        keys = {str(path): key for key, path in self._paths.items()}
        rates = [_rate(attempts.get(row["id"], ())) for row in listed]
        rows = with_states(listed)
        return [
            {"key": keys[row["path"]], **row, **rate}
            for row, rate in zip(rows, rates, strict=True)
            if row["path"] in keys
        ]


def _attempts(connection: Connection) -> Mapping[int, list[tuple[int, int]]]:
    """By run: of each task, how many attempts were graded, and how many succeeded."""
    table = schema.episodes.c
    won = func.sum((table.reward == SUCCESS).cast(Integer))
    query = select(table.run, func.count(), won).where(
        table.split == "train", table.start == "", table.reward.is_not(None)
    )
    found: dict[int, list[tuple[int, int]]] = {}
    for run, n, succeeded in connection.execute(query.group_by(table.run, table.task)):
        found.setdefault(run, []).append((n, int(succeeded)))
    return found


def _rate(attempts: Sequence[tuple[int, int]]) -> dict[str, float | None]:
    n = sum(graded for graded, _ in attempts)
    if not n:
        return {"success": None, "low": None, "high": None}
    low, high = success_interval(attempts)
    return {"success": sum(won for _, won in attempts) / n, "low": low, "high": high}
