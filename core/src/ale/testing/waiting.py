"""Wait in a test until something is so; an error says what did not happen in time."""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

LIMIT_S = 120.0
"""Long, as a busy machine is slow."""


def wait_for(
    condition: Callable[[], Any],
    what: str | Callable[[], object] = "it",
    limit_s: float | None = None,
    pause_s: float = 0.02,
) -> Any:
    """The value that `condition` returns as soon as it is true.

    Args:
        what: what the error names, or a function that returns it, such as the text of a log.
        limit_s: seconds until it is an `AssertionError`; default: `LIMIT_S`.
        pause_s: seconds between two calls of `condition`.
    """
    for _ in _in_time(what, limit_s):
        if found := condition():
            break
        time.sleep(pause_s)
    return found


async def until(
    condition: Callable[[], Any],
    what: str | Callable[[], object] = "it",
    limit_s: float | None = None,
    pause_s: float = 0.02,
) -> Any:
    """`wait_for` that lets other tasks run; `condition` may be a coroutine function."""
    for _ in _in_time(what, limit_s):
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            break
        await asyncio.sleep(pause_s)
    return found


def _in_time(what: str | Callable[[], object], limit_s: float | None) -> Iterator[None]:
    limit_s = LIMIT_S if limit_s is None else limit_s
    deadline = time.monotonic() + limit_s
    yield
    while time.monotonic() < deadline:
        yield
    said = what() if callable(what) else what
    raise AssertionError(f"{said} did not happen within {limit_s:g} s")
