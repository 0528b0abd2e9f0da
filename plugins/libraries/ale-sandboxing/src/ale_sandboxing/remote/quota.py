"""How many sandboxes to hold at a time: learnt from the service's refusals."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class QuotaExceededError(Exception):
    """The service holds as many sandboxes as it may."""


class Quota:
    """Admits sandboxes until the service refuses one; then waits for one to end.

    While the quota is used up one caller at a time tries, when a sandbox of this process has ended
    and after pauses that double: others may use the same quota.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self.held = 0
        self.limit: int | None = None
        """What the service let this process hold; None as long as it has refused nothing."""

    async def admit(self, create: Callable[[], Awaitable[T]]) -> T:
        """Create a sandbox as soon as the quota allows it. `leave` when it has ended.

        Args:
            create: raises QuotaExceededError where it is refused.
        """
        if not self._full():
            try:
                return await self._create(create)
            except QuotaExceededError:
                self.limit = self.held
        async with self._turn:
            return await self._in_turn(create)

    async def _in_turn(self, create: Callable[[], Awaitable[T]]) -> T:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(pause):
                    while self._full():
                        self._freed.clear()
                        await self._freed.wait()
            except TimeoutError:
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                made = await self._create(create)
            except QuotaExceededError:
                self.limit = self.held
            else:
                self.limit = max(self.held, self.limit or 0)
                return made

    def _full(self) -> bool:
        return self.limit is not None and self.held >= self.limit

    async def _create(self, create: Callable[[], Awaitable[T]]) -> T:
        self.held += 1
        try:
            return await create()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """A sandbox has ended."""
        self.held -= 1
        self._freed.set()
