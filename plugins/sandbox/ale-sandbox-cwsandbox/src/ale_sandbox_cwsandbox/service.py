"""CoreWeave's calls, through its SDK, which works in a thread and an event loop of its own."""

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import cwsandbox

from ale.errors import InputError, nearest
from ale_sandbox_cwsandbox import tags
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandbox_cwsandbox.wishes import wanted
from ale_sandboxing.remote.client import LIST_S
from ale_sandboxing.remote.service import Failure, Listed, Request

T = TypeVar("T")
_CALL_S = 120.0


class CwSandbox:
    """One sandbox at the service. See `ale_sandboxing.remote.service.Remote`."""

    def __init__(self, sandbox: cwsandbox.Sandbox) -> None:
        self._sandbox = sandbox

    @property
    def id(self) -> str | None:
        """The service's name for it."""
        return self._sandbox.sandbox_id

    async def create(self) -> None:
        """Ask for it: the SDK keeps the request's id from call to call."""
        await self._sandbox.start()

    async def started(self) -> None:
        """Return as soon as it runs."""
        # The SDK's own limit is that of a call.
        while not await self._runs():
            continue

    async def _runs(self) -> bool:
        with contextlib.suppress(cwsandbox.SandboxTimeoutError):
            await self._sandbox
            return True
        return False

    async def exec(self, argv: Sequence[str]) -> bytes:
        """What one command prints."""
        process = self._sandbox.exec(argv, timeout_seconds=_CALL_S)
        return (await process).stdout_bytes

    async def read(self, path: str) -> bytes:
        """A file; the service takes 32 MiB."""
        return await self._sandbox.read_file(path)

    async def write(self, path: str, data: bytes) -> None:
        """Write a file."""
        await self._sandbox.write_file(path, data)

    async def stop(self) -> None:
        """End it, whatever has become of it."""
        with contextlib.suppress(
            cwsandbox.SandboxNotFoundError, cwsandbox.SandboxTerminalStateUnavailableError
        ):
            await self._sandbox.stop(missing_ok=True, graceful_shutdown_seconds=0)


def _check(arguments: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Can these be given to the SDK too?

    Raises:
        InputError: it has no such argument, or another option stands for it.
    """
    known = {*inspect.signature(cwsandbox.Sandbox).parameters} - {*own}
    for name in arguments:
        if name not in known:
            why = "has no such argument" if name not in own else "gets it from other options"
            path = f"sandbox.arguments.{name}"
            raise InputError.of(f"cwsandbox.Sandbox {why}", path=path, hint=nearest(name, known))


class CwService:
    """See `ale_sandboxing.remote.service.Service`.

    Args:
        auth: as the SDK takes it.
    """

    name = "cwsandbox"
    errors = (cwsandbox.CWSandboxError,)

    def __init__(self, options: CwSandboxOptions, auth: Any) -> None:
        with contextlib.suppress(RuntimeError):  # another user of the SDK has installed them
            cwsandbox.disable_signal_handlers()
        self._options = options
        self._place = {"base_url": options.base_url, "auth": auth}

    def failure(self, error: Exception) -> Failure:
        """What an error of the SDK means."""
        asked = getattr(error, "retry_delay", None)
        return Failure(_kind(error), None if asked is None else asked.total_seconds())

    def prepare(self, request: Request) -> CwSandbox:
        """A sandbox that was not asked for yet."""
        options = self._options
        own: dict[str, Any] = {
            **self._place,
            **wanted(options, request.spec),
            "request_timeout_seconds": _CALL_S,
            "poll_retry_budget_seconds": options.retry_s,
            "max_lifetime_seconds": options.lifetime_s,
            "environment_variables": dict(request.env),
            "tags": tags.tags_of(options.tags, request),
        }
        _check(options.arguments, own)
        return CwSandbox(cwsandbox.Sandbox(**own, **options.arguments))

    async def list(self, request_id: str | None = None) -> Sequence[Listed]:
        """All sandboxes of `ale`, or those of one request."""
        tag = tags.MARK if request_id is None else tags.id_tag(request_id)
        listing = cwsandbox.Sandbox.list(tags=[tag], timeout_seconds=LIST_S, **self._place)
        return [_listed(sandbox) for sandbox in await listing]

    async def delete(self, id: str) -> None:
        """End a sandbox that may be another process's."""
        await cwsandbox.Sandbox.delete(id, missing_ok=True, **self._place)


def _listed(sandbox: cwsandbox.Sandbox) -> Listed:
    images = " ".join(row.image or "" for row in sandbox.containers)
    created = sandbox.created_at
    return Listed(
        id=str(sandbox.sandbox_id),
        tags=tags.spec_tags(sandbox.tags),
        owner=tags.owner_of(sandbox.tags),
        created=None if created is None else created.timestamp(),
        detail=f"{sandbox.status}, {images}",
    )


_FULL = {"CWSANDBOX_RUNNER_CAPACITY_EXHAUSTED", "CWSANDBOX_RUNNER_OVERLOADED"}
_UNCLEAR = {"ABORTED", "DATA_LOSS", "INTERNAL", "UNKNOWN"}
"""Codes of gRPC for which the SDK has no error of its own, and that may be of the moment."""


def _kind(error: Exception) -> Any:
    # No capacity for another sandbox, by a quota or because the machines are busy.
    exhausted = isinstance(error, cwsandbox.SandboxResourceExhaustedError)
    if exhausted or getattr(error, "reason", None) in _FULL:
        return "full"
    if isinstance(error, cwsandbox.SandboxUnavailableError | cwsandbox.SandboxTimeoutError):
        return "unanswered"
    if type(error) is cwsandbox.SandboxError:
        code = getattr(error.__cause__, "code", None)
        return "unclear" if code is not None and code().name in _UNCLEAR else "refused"
    # Of commands: the stream ended early, or brought only a part.
    return "unclear" if isinstance(error, cwsandbox.SandboxExecutionError) else "refused"
