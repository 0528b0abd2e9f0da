"""Stop a run early if its first episodes all break for the same reason."""

from ale._store.diagnosis import Causes
from ale.errors import AleError
from ale.text import shorten
from ale.types import Episode

_WIDTH = 600


class StoppedEarlyError(AleError):
    """The first episodes of this process all broke for the same reason, which is the message."""


class EarlyStop:
    """Watches the first finished episodes of a process.

    Args:
        limit: number of broken episodes that stop the run; None never stops it.
    """

    def __init__(self, limit: int | None) -> None:
        self.cause: str | None = None
        """The common cause, once the run is stopped."""
        self.n_broken = 0
        """Broken episodes so far, as long as no other outcome was seen."""
        self._limit = limit
        self._causes = Causes()

    def add(self, episode: Episode) -> None:
        """Count a finished episode.

        Raises:
            StoppedEarlyError: it is the last of the first `limit`, all broken for the same reason.
        """
        if self._limit is None:
            return
        self._causes.add(episode)
        if episode.failure is None or len(self._causes) > 1:
            self._limit = None  # the run works, or fails in several ways: check no more
            return
        self.n_broken += 1
        if self.n_broken >= self._limit:
            failure = episode.failure
            message = f"{failure.stage}: {failure.kind}: {failure.message}"
            self.cause = shorten(message, _WIDTH)  # wide: the message ends with the remedy
            raise StoppedEarlyError(self.cause)
