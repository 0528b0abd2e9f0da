"""The SDK's calls, repeated while the service does not answer.

Everything that is repeated may be: creating carries the SDK's request id, removing allows what is
gone, and what runs in a sandbox is named by a token (see ``inside/jobs.sh``). The SDK works in a
thread and an event loop of its own, so nothing here blocks.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import cwsandbox

from ale.errors import SandboxError
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandbox_cwsandbox.quota import QuotaExceededError

T = TypeVar("T")
PART = 16 << 20
"""Bytes of a file per call; the service takes 32 MiB."""
_CALL_S = 120.0
_LIST_S = 20.0
"""Somebody may wait for it at a terminal."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_TRIES = 6
"""Of a call that was answered, but with an error that may be of the moment."""
_NO_ANSWER = (
    cwsandbox.SandboxUnavailableError,
    cwsandbox.SandboxTimeoutError,
    cwsandbox.SandboxResourceExhaustedError,
)


class BrokenAnswerError(Exception):
    """An answer arrived in part."""


class Client:
    """Calls of one backend.

    Args:
        auth: as the SDK takes it.
        monotonic: seconds, for time limits.
    """

    def __init__(
        self, options: CwSandboxOptions, auth: Any, monotonic: Callable[[], float]
    ) -> None:
        self._options = options
        self._place = {"base_url": options.base_url, "auth": auth}
        self._monotonic = monotonic

    async def again(
        self, call: Callable[[], Awaitable[T]], what: str, limit_s: float = math.inf
    ) -> T:
        """The result of a call that may be repeated.

        Args:
            limit_s: seconds, where the option `retry_s` allows more.

        Raises:
            SandboxError: it was refused, or not answered for so long.
        """
        end = self._monotonic() + min(limit_s, self._options.retry_s)
        pause, tries = _FIRST_PAUSE_S, 0
        while True:
            try:
                return await call()
            except (cwsandbox.CWSandboxError, BrokenAnswerError) as error:
                tries += not isinstance(error, _NO_ANSWER)
                if not _may_pass(error) or tries >= _TRIES or self._monotonic() > end:
                    raise SandboxError(f"cwsandbox: {what}: {error}") from error
                asked = getattr(error, "retry_delay", None)
            chosen = pause * random.uniform(0.5, 1.5)  # noqa: S311
            await asyncio.sleep(chosen if asked is None else asked.total_seconds())
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def make(self, **wanted: Any) -> cwsandbox.Sandbox:
        """A sandbox that was not asked for yet."""
        options = self._options
        return cwsandbox.Sandbox(
            **self._place,
            request_timeout_seconds=_CALL_S,
            poll_retry_budget_seconds=options.retry_s,
            data_plane_mode=options.data_plane,
            max_lifetime_seconds=options.lifetime_s,
            placement_mode=options.placement,
            runtime_class=options.runtime_class,
            **wanted,
        )

    async def create(self, sandbox: cwsandbox.Sandbox) -> None:
        """Ask for a sandbox; asked for again, the service knows the request.

        Raises:
            QuotaExceededError: there are as many as there may be.
            SandboxError: it was refused.
        """

        async def start() -> bool:
            try:
                await sandbox.start()
            except cwsandbox.CWSandboxError as error:
                if _is_full(error):
                    return False
                raise
            return True

        if not await self.again(start, "create a sandbox"):
            raise QuotaExceededError

    async def started(self, sandbox: cwsandbox.Sandbox) -> None:
        """Wait until it runs.

        Raises:
            SandboxError: it failed, or does not run in time.
        """
        limit = self._options.start_timeout_s
        try:
            async with asyncio.timeout(limit):
                # The SDK's own limit is that of a call.
                while not await self._runs(sandbox):
                    continue
        except (TimeoutError, cwsandbox.CWSandboxError) as error:
            why = f"it does not run after {limit:g} s" if isinstance(error, TimeoutError) else error
            raise SandboxError(f"cwsandbox: sandbox {sandbox.sandbox_id}: {why}") from error

    async def _runs(self, sandbox: cwsandbox.Sandbox) -> bool:
        with contextlib.suppress(cwsandbox.SandboxTimeoutError):
            await sandbox
            return True
        return False

    async def exec(self, sandbox: cwsandbox.Sandbox, argv: Sequence[str]) -> bytes:
        """What one command prints; its exit code does not matter."""
        process = sandbox.exec(argv, timeout_seconds=_CALL_S)
        return (await process).stdout_bytes

    async def read(self, sandbox: cwsandbox.Sandbox, path: str) -> bytes:
        """A file of at most `PART` bytes."""
        what = f"read {path}"
        return await self.again(lambda: _awaited(sandbox.read_file(path)), what)

    async def write(self, sandbox: cwsandbox.Sandbox, path: str, data: bytes) -> None:
        """Write a file of at most `PART` bytes; its folder is there."""
        await self.again(lambda: _awaited(sandbox.write_file(path, data)), f"write {path}")

    async def stop(self, sandbox: cwsandbox.Sandbox) -> None:
        """End a sandbox, whatever has become of it."""

        async def stop() -> None:
            with contextlib.suppress(
                cwsandbox.SandboxNotFoundError, cwsandbox.SandboxTerminalStateUnavailableError
            ):
                await sandbox.stop(missing_ok=True, graceful_shutdown_seconds=0)

        await self.again(stop, f"remove sandbox {sandbox.sandbox_id}; `ale sandbox prune` does")

    async def list(self, tag: str) -> list[cwsandbox.Sandbox]:
        """All sandboxes that have a tag."""
        place = self._place
        return await self.again(
            lambda: _awaited(cwsandbox.Sandbox.list(tags=[tag], timeout_seconds=_LIST_S, **place)),
            "list sandboxes",
            limit_s=_LIST_S,
        )

    async def delete(self, id: str) -> None:
        """Remove a sandbox that may be another process's."""
        place = self._place
        await self.again(
            lambda: _awaited(cwsandbox.Sandbox.delete(id, missing_ok=True, **place)),
            f"remove sandbox {id}",
        )


async def _awaited(operation: cwsandbox.OperationRef[T]) -> T:
    return await operation


_FULL = {"CWSANDBOX_RUNNER_CAPACITY_EXHAUSTED", "CWSANDBOX_RUNNER_OVERLOADED"}


def _is_full(error: cwsandbox.CWSandboxError) -> bool:
    """Is there no capacity for another sandbox, by a quota or because the machines are busy?"""
    exhausted = isinstance(error, cwsandbox.SandboxResourceExhaustedError)
    return exhausted or getattr(error, "reason", None) in _FULL


_UNCLEAR = {"ABORTED", "DATA_LOSS", "INTERNAL", "UNKNOWN"}
"""Codes of gRPC for which the SDK has no error of its own, and that may be of the moment."""


def _may_pass(error: Exception) -> bool:
    """May the same call succeed a moment later?"""
    if type(error) is cwsandbox.SandboxError:
        code = getattr(error.__cause__, "code", None)
        return code is not None and code().name in _UNCLEAR
    # Of commands: the stream ended early, or brought only a part.
    passing = (*_NO_ANSWER, BrokenAnswerError, cwsandbox.SandboxExecutionError)
    return isinstance(error, passing)
