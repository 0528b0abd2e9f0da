"""Time limits on calls into plugins, which may hang, ignore cancellation or raise anything."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from ale.errors import AleError, SandboxError
from ale.protocols import Sandbox

T = TypeVar("T")

CLEANUP_S = 30.0
"""Seconds that a cancelled call may take to clean up."""


class OverdueError(AleError):
    """A call took longer than its time limit."""


class Supervisor:
    """Runs coroutines of plugins as separate tasks.

    A plugin's coroutine may raise `CancelledError` or `SystemExit`, or ignore its cancellation:
    the caller gets an error, but is neither blocked nor ended by it.
    """

    def __init__(self) -> None:
        """Start without any calls."""
        self.abandoned: list[asyncio.Task[Any]] = []
        """Tasks that ignored their cancellation; a run can't end them."""

    async def run(
        self,
        call: Coroutine[Any, Any, T],
        limit_s: float | None,
        name: str,
        given_up: "asyncio.Future[AleError] | None" = None,
    ) -> T:
        """The result of `call`.

        Args:
            limit_s: seconds; None for no limit.
            name: what is called, for error messages.
            given_up: as soon as it is done, the call is cancelled, and its result is raised.

        Raises:
            OverdueError: it took longer than `limit_s`, and was cancelled.
            AleError: it ignored its cancellation, cancelled itself, or raised `SystemExit`.
        """
        task = asyncio.ensure_future(_without_exit(call, name))
        try:
            waited: set[asyncio.Future[Any]] = {task} | ({given_up} if given_up else set())
            await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel(task)
            raise
        if not task.done():
            await self._cancel(task)
            if given_up is not None and given_up.done():
                raise given_up.result()
            if not task.done():
                raise AleError(f"{name} was cancelled after {limit_s:g} s and did not end")
            if task.cancelled():
                raise OverdueError(f"{name} took longer than {limit_s:g} s")
        if task.cancelled():
            raise AleError(f"{name} raised CancelledError, though nobody had cancelled it")
        return task.result()

    async def _cancel(self, task: "asyncio.Task[Any]") -> None:
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=CLEANUP_S)
        if not done:
            self.abandoned.append(task)


async def _without_exit(call: Coroutine[Any, Any, T], name: str) -> T:
    try:
        return await call
    except SystemExit as error:
        # Raised in a task, it would end the event loop, and every other episode with it.
        raise AleError(f"{name} raised SystemExit({error.code})") from error


@asynccontextmanager
async def open_in_time(
    sandbox: AbstractAsyncContextManager[Sandbox], limit_s: float, teardown_errors: list[str]
) -> AsyncIterator[Sandbox]:
    """Open a sandbox and close it after the block, each within `limit_s` seconds.

    Both happen in the calling task, as the backend's context manager may require (a task group, a
    timeout). A sandbox that can't be closed does not invalidate the verdict: the error is added to
    `teardown_errors`, and the next prune removes what is left.
    """
    async with _time_limit(limit_s, "the sandbox did not open"):
        opened = await sandbox.__aenter__()
    try:
        yield opened
    finally:
        try:
            async with _time_limit(limit_s, "the sandbox did not close"):
                await sandbox.__aexit__(None, None, None)
        except Exception as error:
            teardown_errors.append(f"{type(error).__name__}: {error}")


@asynccontextmanager
async def _time_limit(limit_s: float, message: str) -> AsyncIterator[None]:
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise SandboxError(f"{message} within {limit_s:g} s") from None
