"""Threads for an engine's blocking calls."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_CALLS = 32
_HEAVY = 4


class EngineThreads:
    """Two thread pools: a small one for calls that load the engine, a large one for other calls.

    Starting many containers in parallel is slower than a few at a time, because of locks in the
    engine and the kernel.
    """

    def __init__(self) -> None:
        self._heavy = ThreadPoolExecutor(_HEAVY, "ale-engine-heavy")
        self._light = ThreadPoolExecutor(_CALLS, "ale-engine")
        self._pending: set[Future[None]] = set()

    async def call(self, work: Callable[[], T]) -> T:
        """Run it in a thread. Cancelling stops the wait, not the work."""
        return await asyncio.wrap_future(self._light.submit(work))

    def heavy(self, work: Callable[[], T]) -> "Future[T]":
        """Run it in the small pool."""
        return self._heavy.submit(work)

    async def heavily(self, work: Callable[[], object]) -> None:
        """Run it in the small pool and wait. Cancelling stops the wait, not the work."""
        await asyncio.shield(asyncio.wrap_future(self.heavy(work)))

    def background(self, work: Callable[[], None]) -> "Future[None]":
        """Run it in the small pool in the background, after what was given before has begun;
        `drain` waits for it."""
        future = self._heavy.submit(work)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    async def drain(self) -> None:
        """Wait until nothing runs in the background."""
        while self._pending:
            await asyncio.wait([asyncio.wrap_future(future) for future in list(self._pending)])
            await asyncio.sleep(0)
