"""Shows the log of the run as it grows."""

import asyncio
from collections.abc import Callable
from pathlib import Path

_PAUSE_S = 0.1


class Follower:
    """Shows what is appended to a file from now on, which may not exist yet."""

    def __init__(self, path: Path, show: Callable[[bytes], None]) -> None:
        self._path = path
        self._show = show
        self._at = path.stat().st_size if path.exists() else 0

    async def follow(self) -> None:
        """Until it is cancelled."""
        while True:
            self.show_new()
            await asyncio.sleep(_PAUSE_S)

    def show_new(self) -> None:
        """What was appended since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            found = file.read()
        self._at += len(found)
        if found:
            self._show(found)
