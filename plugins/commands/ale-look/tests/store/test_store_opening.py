"""A database is opened while others open and write it."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ale.errors import StoreError
from ale_look.store.database import open_database


def test_opening_waits_for_another_process_that_makes_the_database(tmp_path: Path) -> None:
    """SQLite refuses the change to a write-ahead log at once while another is changing the file."""
    where = tmp_path / "index.sqlite"
    other = sqlite3.connect(where, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_database, str(where))
        time.sleep(0.3)
        other.execute("ROLLBACK")
        opened.result().close()
    other.close()


def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path) -> None:
    where = tmp_path / "what 100%? #1.sqlite"
    other = sqlite3.connect(where)
    for name in ("a", "b", "c", "d"):
        other.execute(f"CREATE TABLE {name} (id)")
    other.close()
    before = where.read_bytes()
    message = r"is a database of another program \(tables: a, b, c, \.\.\.\); choose another file"
    with pytest.raises(StoreError, match=message):
        open_database(str(where))
    assert where.read_bytes() == before
    assert list(tmp_path.iterdir()) == [where]


def test_an_empty_database_is_taken(tmp_path: Path) -> None:
    where = tmp_path / "empty.sqlite"
    where.touch()
    open_database(str(where)).close()
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE a (id)")
    other.execute("DROP TABLE a")
    other.close()
    open_database(str(tmp_path / "other.sqlite")).close()
    open_database(str(where)).close()


def test_a_database_of_the_version_before_is_read_again(tmp_path: Path) -> None:
    where = tmp_path / "index.sqlite"
    open_database(str(where)).close()
    old = sqlite3.connect(where)
    old.execute("ALTER TABLE scores DROP COLUMN contested")
    old.execute("UPDATE store_version SET version_num = '0003'")
    old.execute(
        "INSERT INTO runs (id, path, host, run_id, n_tasks, n_episodes, n_broken, n_graded, "
        "n_succeeded) VALUES (1, '/r', 'h', 'r', 1, 0, 0, 0, 0)"
    )
    old.execute("INSERT INTO files (run, name, size, modified_ns) VALUES (1, 'a', 5, 6)")
    old.commit()
    open_database(str(where)).close()
    assert [*old.execute("SELECT size, modified_ns, line_at FROM files")] == [(-1, -1, 0)]
    assert [*old.execute("SELECT contested FROM scores")] == []
    old.close()
