"""A database is opened while others open and write it."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ale_store.database import open_database


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
