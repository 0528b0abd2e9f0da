"""Updates the database while the run is running, from the run directory, in a thread."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ale.errors import AleError, NotUsableError
from ale.observers import BackgroundSender
from ale.plugin import BuildContext, hookimpl
from ale.types import RunFinished, RunStarted
from ale_look.store.options import StoreOptions

EVERY_S = 5.0
"""Shortest time between two updates."""
FINISH_TIMEOUT_S = 30.0
"""How long the end of the run waits for the last update."""
logger = logging.getLogger(__name__)


class Updating:
    """Reads what the run has stored so far, at most every few seconds, and at its end.

    Raises:
        NotUsableError: when made: the variable with the URL is not set.
    """

    def __init__(self, options: StoreOptions, context: BuildContext) -> None:
        self._options = options
        self._url: str | None = None
        if options.url_env is not None:
            secret = context.secret(options.url_env)
            if secret is None:
                raise NotUsableError(f"the environment variable {options.url_env} is not set")
            self._url = secret.value
        self._sender: BackgroundSender[None] | None = None
        self._next = 0.0

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Open the database."""
        directory = Path(event.directory)
        self._sender = BackgroundSender(lambda: self._updates(directory), name="store")
        self._sender.start()

    @hookimpl
    def ale_episode_finished(self) -> None:
        """Update, if the last update is long enough ago."""
        self._update()

    @hookimpl
    def ale_step_finished(self) -> None:
        """Likewise."""
        self._update()

    def _update(self) -> None:
        if self._sender is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            self._sender.send(None)

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Update once more, with the outcome."""
        if self._sender is not None:
            self._sender.send(None)
            self._sender.close(FINISH_TIMEOUT_S)

    @contextmanager
    def _updates(self, directory: Path) -> Iterator[Callable[[None], None]]:
        # Imported in the thread: SQLAlchemy takes a while.
        from ale_look.store.database import FILE, open_database
        from ale_look.store.indexing import Indexer

        where = self._url or str(self._options.file or directory.parent / FILE)
        database = open_database(where)
        indexer = Indexer(database)

        reported = ""

        def update(_: None) -> None:
            nonlocal reported
            try:
                indexer.update_run(directory)
            except AleError as error:
                # The run itself is complete; the next `ale runs` reads what is missing here.
                if str(error) != reported:
                    logger.warning("%s was not updated: %s", database.shown, error)
                reported = str(error)

        try:
            yield update
        finally:
            database.close()
