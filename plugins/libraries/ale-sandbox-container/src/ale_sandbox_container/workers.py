"""Threads for an engine's blocking calls."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_CALLS = 32


class Workers:
    """Two sets of threads: a few for what keeps the engine busy, many for what waits for it.

    Starting many containers at a time is slower than starting a few after the other: the engine
    and the kernel take turns behind locks.

    Args:
        at_once: heavy calls at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._heavy = ThreadPoolExecutor(at_once, "ale-engine-heavy")
        self._light = ThreadPoolExecutor(_CALLS, "ale-engine")
        self._behind: set[Future[None]] = set()

    async def call(self, work: Callable[[], T]) -> T:
        """Run it in a thread. Cancelling stops the wait, not the work."""
        return await asyncio.wrap_future(self._light.submit(work))

    def heavy(self, work: Callable[[], T]) -> "Future[T]":
        """Run it when the engine has time for it."""
        return self._heavy.submit(work)

    def behind(self, work: Callable[[], None]) -> None:
        """Run it in its turn; nobody waits for it but `drain` and the end of this process."""
        future = self._heavy.submit(work)
        self._behind.add(future)
        future.add_done_callback(self._behind.discard)

    async def drain(self) -> None:
        """Until nothing runs behind."""
        while self._behind:
            await asyncio.wait([asyncio.wrap_future(future) for future in list(self._behind)])
            await asyncio.sleep(0)
