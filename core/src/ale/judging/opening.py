"""Whether a judge that does not start is the agent's doing, or the machine's."""

import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from ale.errors import SandboxDamagedError, SandboxError, UnsupportedError
from ale.judging.judge import EVERYTHING
from ale.protocols import Judge

J = TypeVar("J", bound=Judge)
_ATTEMPTS = 3
"""Starts with the agent's files that must fail, beside one without them that does not."""


@contextlib.asynccontextmanager
async def opened_judge(
    open_once: Callable[[Collection[str]], AbstractAsyncContextManager[J]],
    without: Collection[str],
) -> AsyncIterator[J]:
    """A judge; it is tried again, and without any of the agent's files, where it does not start.

    Args:
        open_once: opens one; it raises `SandboxError` if that does not start.
        without: see `ale.protocols.OpensJudge.open_judge`.

    Raises:
        SandboxDamagedError: it starts only without them.
        SandboxError: it does not start at all.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield await _entered(stack, open_once, without)


async def _entered(
    stack: contextlib.AsyncExitStack,
    open_once: Callable[[Collection[str]], AbstractAsyncContextManager[J]],
    without: Collection[str],
) -> J:
    for attempt in range(_ATTEMPTS):
        try:
            return await stack.enter_async_context(open_once(without))
        except UnsupportedError:
            raise
        except SandboxError as error:
            cause = error
        if attempt == 0:
            async with open_once((EVERYTHING,)):
                pass
        # The next attempts follow one that worked: a machine that was too busy is not the agent.
    message = f"a fresh sandbox does not start with the agent's files: {cause}"
    raise SandboxDamagedError(message) from cause
