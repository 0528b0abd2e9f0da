"""The service's calls, repeated while it does not answer.

Everything that is repeated may be: creating carries the id of the request, removing allows what is
gone, and what runs in a sandbox is named by a token (see ``inside/jobs.sh``).
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ale.errors import SandboxError
from ale_sandboxing.remote.quota import QuotaExceededError
from ale_sandboxing.remote.service import Failure, Listed, Remote, Service

T = TypeVar("T")
PART = 16 << 20
"""Bytes of a file per call."""
LIST_S = 20.0
"""Seconds for a list: somebody may wait for it at a terminal."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_ANSWERED = ("refused", "unclear")
_TRIES = 6
"""Of a call that was answered, but with an error that may be of the moment."""


class BrokenAnswerError(Exception):
    """An answer arrived in part."""


class Client:
    """Calls of one backend.

    Args:
        retry_s: seconds for which a call is repeated.
        monotonic: seconds, for time limits.
    """

    def __init__(self, service: Service, retry_s: float, monotonic: Callable[[], float]) -> None:
        self._service = service
        self._errors: tuple[type[Exception], ...] = (*service.errors, BrokenAnswerError)
        self._not_started: tuple[type[Exception], ...] = (TimeoutError, *service.errors)
        self._retry_s = retry_s
        self._monotonic = monotonic

    def _failure(self, error: Exception) -> Failure:
        if isinstance(error, BrokenAnswerError):
            return Failure("unclear")
        return self._service.failure(error)

    def was_answered(self, error: SandboxError) -> bool:
        """Whether what `again` raised is an answer of the service, which could be reached."""
        cause = error.__cause__
        return isinstance(cause, self._errors) and self._failure(cause).kind in _ANSWERED

    async def again(
        self, call: Callable[[], Awaitable[T]], what: str, limit_s: float = math.inf
    ) -> T:
        """The result of a call that may be repeated.

        Args:
            limit_s: seconds, where `retry_s` is more.

        Raises:
            SandboxError: it was refused, or not answered for so long.
        """
        end = self._monotonic() + min(limit_s, self._retry_s)
        pause, tries = _FIRST_PAUSE_S, 0
        while True:
            try:
                return await call()
            except self._errors as error:
                failure = self._failure(error)
                tries += failure.kind == "unclear"
                refused = failure.kind == "refused"
                if refused or tries >= _TRIES or self._monotonic() > end:
                    raise SandboxError(f"{self._service.name}: {what}: {error}") from error
            chosen = pause * random.uniform(0.5, 1.5)  # noqa: S311
            await asyncio.sleep(failure.retry_after_s or chosen)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def create(self, remote: Remote) -> None:
        """Ask for a sandbox.

        Raises:
            QuotaExceededError: there are as many as there may be.
            SandboxError: it was refused.
        """

        async def create() -> bool:
            try:
                await remote.create()
            except self._errors as error:
                if self._failure(error).kind == "full":
                    return False
                raise
            return True

        if not await self.again(create, "create a sandbox"):
            raise QuotaExceededError

    async def started(self, remote: Remote, limit_s: float) -> None:
        """Wait until it runs.

        Raises:
            SandboxError: it failed, or does not run in time.
        """
        try:
            async with asyncio.timeout(limit_s):
                await remote.started()
        except self._not_started as error:
            expired = isinstance(error, TimeoutError)
            why = f"it does not run after {limit_s:g} s" if expired else error
            raise SandboxError(f"{self._service.name}: sandbox {remote.id}: {why}") from error

    async def read(self, remote: Remote, path: str) -> bytes:
        """A file of at most `PART` bytes."""
        return await self.again(lambda: remote.read(path), f"read {path}")

    async def write(self, remote: Remote, path: str, data: bytes) -> None:
        """Write a file of at most `PART` bytes; its folder is there."""
        await self.again(lambda: remote.write(path, data), f"write {path}")

    async def stop(self, remote: Remote) -> None:
        """End a sandbox, whatever has become of it."""
        await self.again(remote.stop, f"remove sandbox {remote.id}; `ale sandbox prune` does")

    async def list(self, request_id: str | None = None) -> Sequence[Listed]:
        """All sandboxes of `ale`, or those of one request."""
        return await self.again(
            lambda: self._service.list(request_id), "list sandboxes", limit_s=LIST_S
        )

    async def delete(self, id: str) -> None:
        """Remove a sandbox that may be another process's."""
        await self.again(lambda: self._service.delete(id), f"remove sandbox {id}")
