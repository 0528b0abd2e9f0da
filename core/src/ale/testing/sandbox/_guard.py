"""A time limit on every call to the sandbox under test, so that a hang fails and is named."""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

from ale.protocols import Sandbox, SandboxBackend, Session
from ale.testing._wrapper import Wrapper
from ale.testing.sandbox import probes

T = TypeVar("T")
_CALLS = {
    *("exec", "session", "run", "read", "write", "upload", "download", "end_processes", "fork"),
    *("snapshot", "close", "list", "prune", "aclose"),
    *("switch_user", "agent_started", "set_network", "service"),
}
_CONTEXTS = {"open", "restore", "open_sibling"}


async def in_time(call: Awaitable[T], name: str, allowed_s: float = 0.0) -> T:
    """The call's result.

    Args:
        allowed_s: seconds that the call's own time limit allows, in addition to the kit's limit.

    Raises:
        AssertionError: it did not return in time, or not after it was cancelled. It is left
            behind, because a call that ignores its cancellation would hold up the test again.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=probes.TIMEOUT_S + allowed_s)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task], timeout=probes.TIMEOUT_S)
        if task.done():
            raise
        late = f"`{name}` did not return within {probes.TIMEOUT_S:g} s after it was cancelled"
        raise AssertionError(late) from None
    if not task.done():
        task.cancel()
        after = f" after its time limit of {allowed_s:g} s" if allowed_s else ""
        raise AssertionError(f"`{name}` did not return within {probes.TIMEOUT_S:g} s{after}")
    return task.result()


class Guard(Wrapper):
    """A sandbox, session or backend whose calls have a time limit."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name in _CALLS:
            return functools.partial(_called, found, name)
        return functools.partial(_entered, found, name) if name in _CONTEXTS else found


async def _called(function: Callable[..., Awaitable[Any]], name: str, *args: Any, **kw: Any) -> Any:
    return guarded(await in_time(function(*args, **kw), name, kw.get("timeout_s") or 0.0))


@contextlib.asynccontextmanager
async def _entered(
    function: Callable[..., Any], name: str, *args: Any, **kw: Any
) -> AsyncIterator[Any]:
    context = function(*args, **kw)
    sandbox = await in_time(context.__aenter__(), name)
    try:
        yield guarded(sandbox)
    except BaseException as error:
        if not await in_time(context.__aexit__(type(error), error, error.__traceback__), "close"):
            raise
    else:
        await in_time(context.__aexit__(None, None, None), "close")


def guarded(value: T) -> T:
    """A sandbox, session or backend with time limits; anything else as it is."""
    if isinstance(value, Sandbox | Session | SandboxBackend) and not isinstance(value, Guard):
        return cast("T", Guard(value))
    return value


def unguarded(value: T) -> T:
    """The object that a guard calls."""
    return cast("T", value.inner) if isinstance(value, Guard) else value


def time_limited(probes: type[T]) -> type[T]:
    """Give every probe of a class guarded arguments."""
    for name, function in list(vars(probes).items()):
        if name.startswith("test_") and inspect.iscoroutinefunction(function):
            setattr(probes, name, _with_guards(function))
    return probes


def _with_guards(probe: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(probe)
    async def run(self: object, *args: Any, **kw: Any) -> None:
        given = {name: guarded(value) for name, value in kw.items()}
        await probe(self, *map(guarded, args), **given)

    return run
