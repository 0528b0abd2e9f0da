"""Bounds on waiting for parts that may never answer, and that may end in any way."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from ale.errors import AleError, SandboxError
from ale.protocols import Sandbox

T = TypeVar("T")

UNWIND_S = 30.0
"""How long something that was cancelled may take to clean up after itself."""


class OverdueError(AleError):
    """A part took longer than it may."""


class Waiting:
    """Runs what plugins give it as tasks of its own.

    A plugin's coroutine may raise `CancelledError` or `SystemExit`, or go on when it is cancelled;
    the one who waits here hears of it, is never held up by it, and is not ended by it.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.abandoned: list[asyncio.Task[Any]] = []
        """Tasks that went on after they had been cancelled; a run can't end them."""

    async def result(self, work: Coroutine[Any, Any, T], seconds: float | None, what: str) -> T:
        """The result of `work`.

        Raises:
            OverdueError: it took longer than `seconds`, and was cancelled.
            AleError: it went on when it was cancelled, cancelled itself, or tried to end the
                program.
        """
        task = asyncio.ensure_future(_contained(work, what))
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await self._end(task)
            raise
        if not done:
            await self._end(task)
            if not task.done():
                raise AleError(f"{what} was cancelled after {seconds:g} s and went on")
            if task.cancelled():
                raise OverdueError(f"{what} took longer than {seconds:g} s")
        if task.cancelled():
            raise AleError(f"{what} raised CancelledError, though nobody had cancelled it")
        return task.result()

    async def _end(self, task: "asyncio.Task[Any]") -> None:
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=UNWIND_S)
        if not done:
            self.abandoned.append(task)


async def _contained(work: Coroutine[Any, Any, T], what: str) -> T:
    try:
        return await work
    except SystemExit as error:
        # In a task it would end the event loop, and every other episode with it.
        raise AleError(f"{what} raised SystemExit({error.code})") from error


@asynccontextmanager
async def opened(
    sandbox: AbstractAsyncContextManager[Sandbox], seconds: float, left_behind: list[str]
) -> AsyncIterator[Sandbox]:
    """Open and close a sandbox, each in bounded time.

    Both are done in the task that calls, as what a backend keeps open (a task group, a timeout)
    may demand. One that can't be closed spoils no verdict: that is noted in `left_behind`, and the
    next prune finds what is left.
    """
    async with _within(seconds, "the sandbox did not open"):
        inside = await sandbox.__aenter__()
    try:
        yield inside
    finally:
        try:
            async with _within(seconds, "the sandbox did not close"):
                await sandbox.__aexit__(None, None, None)
        except Exception as error:
            left_behind.append(f"{type(error).__name__}: {error}")


@asynccontextmanager
async def _within(seconds: float, late: str) -> AsyncIterator[None]:
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise SandboxError(f"{late} within {seconds:g} s") from None
