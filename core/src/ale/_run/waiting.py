"""Bounds on waiting for parts that may never answer."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from ale.errors import AleError, SandboxError
from ale.protocols import Sandbox

T = TypeVar("T")

_UNWIND_S = 30.0
"""How long something that was cancelled may take to clean up after itself."""


@asynccontextmanager
async def opened(
    sandbox: AbstractAsyncContextManager[Sandbox], seconds: float, left_behind: list[str]
) -> AsyncIterator[Sandbox]:
    """Open and close a sandbox, each in bounded time.

    One that can't be closed spoils no verdict: that is noted in `left_behind`, and the next prune
    finds what is left.
    """
    try:
        async with asyncio.timeout(seconds):
            inside = await sandbox.__aenter__()
    except TimeoutError:
        raise SandboxError(f"the sandbox did not open within {seconds:g} s") from None
    try:
        yield inside
    finally:
        try:
            async with asyncio.timeout(seconds):
                await sandbox.__aexit__(None, None, None)
        except Exception as error:
            left_behind.append(f"{type(error).__name__}: {error}")


async def cut_off(work: Coroutine[Any, Any, T], seconds: float | None) -> T | None:
    """The result of `work`, or None when it took longer and was cancelled.

    Raises:
        AleError: it went on in spite of being cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not done:
        await _end(task)
        if not task.done():
            raise AleError(f"it was cancelled after {seconds:g} s and went on")
        return None if task.cancelled() else task.result()
    return task.result()


async def _end(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=_UNWIND_S)
