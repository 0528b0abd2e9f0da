"""A database of runs: SQLite in a file, or PostgreSQL by a URL; its tables are made as needed."""

import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import frozen
from sqlalchemy import (
    Connection,
    Engine,
    column,
    create_engine,
    event,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
)

from ale.errors import InputError, NotUsableError, StoreError
from ale.files import restrict
from ale_look.store.patterns import matches

FILE = "index.sqlite"
"""Name of the database, beside the run directories or in the cache."""
OLDEST, NEWEST = "0003", "0004"
"""Versions of the tables that can be brought to the newest, which this package reads and writes."""
_VERSION = re.compile(r"(?!0000)\d{4}")
VERSIONS = "store_version"
"""The table that holds it."""
_WRITER = 0x616C65
"""PostgreSQL's advisory lock: one process writes at a time, as in SQLite."""
_PATIENCE_S = 60.0
_WRITES = "ale_writes"


class UnfitError(StoreError):
    """A value that the tables can't hold, such as a number of more than 64 bits."""


@frozen
class Database:
    """An open database. Any number of processes may read while one writes."""

    engine: Engine
    shown: str
    """Its name for messages, without a password."""

    @property
    def sqlite(self) -> bool:
        """Whether it is a file of SQLite."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the database.

        Raises:
            StoreError: the database can't be read.
        """
        with self._reporting(), self.engine.connect() as connection:
            if not self.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction; another process that wants to write waits for its end.

        Raises:
            StoreError: the database can't be written.
        """
        with self._reporting(), self.engine.connect() as plain:
            connection = plain.execution_options(**{_WRITES: True})
            with connection.begin():
                if not self.sqlite:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER})"))
                yield connection

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            message = f"{self.shown}: {error.orig}{self._hint(str(error.orig))}"
            if isinstance(error, DataError | IntegrityError | InterfaceError):
                raise UnfitError(message) from error
            raise StoreError(message) from error
        except OverflowError as error:  # SQLite's driver: more than 64 bits
            raise UnfitError(f"{self.shown}: {error}") from error

    def _hint(self, message: str) -> str:
        if not self.sqlite:
            return ""
        damaged = "not a database" in message or "malformed" in message
        # Of another name, it may be a file that the user needs.
        if damaged and Path(self.shown).name == FILE:
            return "; delete the file: it is made again from the run directories"
        if damaged or "readonly" in message or "unable to open" in message:
            return "; choose another file with --store"
        return ""

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()


def default_file(folder: Path) -> Path:
    """The database of a folder of runs: that in the folder, if there is one that can be written.

    Otherwise one in ``$XDG_CACHE_HOME/ale/store``, or ``~/.cache/ale/store``, so that looking at
    runs leaves their folder as it is.
    """
    there = folder.resolve() / FILE
    if os.access(there, os.W_OK) and os.access(there.parent, os.W_OK):
        return there
    given = os.environ.get("XDG_CACHE_HOME")
    cache = Path(given) if given else Path.home() / ".cache"
    digest = hashlib.blake2b(os.fsencode(there.parent), digest_size=8).hexdigest()
    return cache / "ale" / "store" / f"{there.parent.name}-{digest}" / FILE


def open_database(where: str) -> Database:
    """Open a database, and bring its tables to the newest version.

    Args:
        where: a file, or ``postgresql://...``.

    Raises:
        InputError: another kind of URL.
        NotUsableError: the driver of PostgreSQL is not installed.
        StoreError: it can't be opened, is a file of another program, or was written by a newer
            version of this package.
    """
    url = _url(where)
    if url.drivername == "sqlite":
        path = Path(str(url.database))
        _refuse_of_others(path)
        with suppress(OSError):  # sqlite says better what is wrong
            if not path.exists():
                path.touch(mode=0o660)
                restrict(path)  # it has texts of conversations
        engine = create_engine(url, connect_args={"timeout": _PATIENCE_S})
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    else:
        engine = create_engine(url)
    database = Database(engine, _shown(url))
    _migrate(database)
    return database


def _url(where: str) -> URL:
    if "://" not in where:
        return URL.create("sqlite", database=str(Path(where).absolute()))
    try:
        url = make_url(where)
    except ArgumentError:
        url = URL.create("unreadable")
    if url.get_backend_name() not in ("postgresql", "postgres"):
        message = "not a file and not a URL of PostgreSQL"
        expected = "a path, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise InputError.of(message, file="--store", expected=expected)
    if find_spec("psycopg") is None:
        remedy = 'pip install "psycopg[binary]>=3.2,<4"'
        raise NotUsableError(f"the driver of PostgreSQL is not installed: {remedy}")
    return url.set(drivername="postgresql+psycopg")


def _shown(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


def _refuse_of_others(path: Path) -> None:
    """Raise `StoreError` if a file has tables, but not this package's. Nothing is changed."""
    if not path.is_file():
        return
    only_read = f"{path.as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(only_read, timeout=_PATIENCE_S, uri=True)) as connection:
            asked = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            found = [name for (name,) in connection.execute(asked)]
    except sqlite3.Error:
        return  # it is reported when the file is opened to write
    if found and VERSIONS not in found:
        some = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise StoreError(
            f"{path} is a database of another program (tables: {some}); "
            "choose another file with --store"
        )


def _prepare(connection: Any, _: object) -> None:
    connection.isolation_level = None  # `_begin` begins transactions
    _use_wal(connection)
    for setting in ("synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")
    # SQLite's own changes only A to Z, and a search in any case compares what it gives.
    connection.create_function("lower", 1, _lower, deterministic=True)
    connection.create_function("matches", 2, matches, deterministic=True)


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _use_wal(connection: Any) -> None:
    """SQLite does not wait here itself while another process makes the same change."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin(connection: Connection) -> None:
    """A transaction that will write says so at once: it would fail if another wrote before it."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _migrate(database: Database) -> None:
    with database.reading() as connection:
        found = _version(connection)
    if found == NEWEST:
        return
    if found is not None and not _VERSION.fullmatch(found):
        message = f"its tables have the version '{found}', which no ale-look has written"
        raise StoreError(f"{database.shown} is damaged: {message}")
    if found is not None and found > NEWEST:
        raise StoreError(
            f"{database.shown} was written by a newer version of ale-look (tables {found}, this "
            f"one knows {NEWEST})"
        )
    if found is not None and found < OLDEST:
        raise StoreError(
            f"{database.shown} has tables of version {found}, from before the first release; make "
            "a new database: all that is in it is read from the run directories again"
        )
    with database.writing() as connection:
        _upgrade(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSIONS):
        return None
    version: str | None = connection.scalar(
        select(column("version_num")).select_from(table(VERSIONS))
    )
    return version


def _upgrade(connection: Connection) -> None:
    """Bring the tables to the newest version, in the transaction of this connection."""
    from alembic import command  # 0.2 s, and needed once per database
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "versions": VERSIONS})
    config.set_main_option("script_location", "ale_look.store:migrations")
    config.set_main_option("path_separator", "os")
    command.upgrade(config, NEWEST)
