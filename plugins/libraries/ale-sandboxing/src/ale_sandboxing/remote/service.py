"""What a service has to offer, so that its sandboxes can be used by `ale`."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from attrs import frozen

from ale.types import SandboxSpec


@frozen(kw_only=True)
class Request:
    """One sandbox that is to be created."""

    id: str
    """Of the request. A creation that is asked for again under the same id makes no second one."""
    spec: SandboxSpec
    env: Mapping[str, str]
    """All variables, those of the spec included."""
    tags: Mapping[str, str]
    """Of the run and of the spec."""
    owner: str
    """The process that asks; see `owners`."""


@frozen(kw_only=True)
class Listed:
    """One sandbox, as the service lists it."""

    id: str
    tags: Mapping[str, str]
    """Those of the request."""
    owner: str | None
    created: float | None = None
    """Seconds since 1970."""
    detail: str = ""


@frozen
class Failure:
    """What an error of a call means.

    ``full``: the service holds as many sandboxes as it may. ``unanswered``: it could not be reached
    or was too busy. ``unclear``: it answered with an error that may be of the moment. ``refused``:
    the same call will fail again.
    """

    kind: Literal["full", "unanswered", "unclear", "refused"]
    retry_after_s: float | None = None
    """Seconds to wait, where the service has named them."""


class Remote(Protocol):
    """One sandbox at the service. Each method makes one call; `client.Client` repeats it."""

    @property
    def id(self) -> str | None:
        """The service's name for it; None as long as its creation was not answered."""
        ...

    async def create(self) -> None:
        """Ask for it. May be called again until it was answered."""
        ...

    async def started(self) -> None:
        """Return as soon as it runs. Cancelled after a time limit."""
        ...

    async def exec(self, argv: Sequence[str]) -> bytes:
        """Run a short command; what it prints to stdout. Its exit code does not matter."""
        ...

    async def read(self, path: str) -> bytes:
        """The bytes of a file of at most `client.PART` bytes."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of at most `client.PART` bytes; its folder is there."""
        ...

    async def stop(self) -> None:
        """End it. It may have ended."""
        ...


class Service(Protocol):
    """A service, with one key."""

    @property
    def name(self) -> str:
        """Of the backend."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its calls raise."""
        ...

    def failure(self, error: Exception) -> Failure:
        """What such an error means."""
        ...

    def prepare(self, request: Request) -> Remote:
        """A sandbox that was not asked for yet.

        Raises:
            UnsupportedError: the service can't give what the spec asks for.
        """
        ...

    async def list(self, request_id: str | None = None) -> Sequence[Listed]:
        """All sandboxes of `ale`, or those of one request."""
        ...

    async def delete(self, id: str) -> None:
        """End a sandbox that may be another process's, and may have ended."""
        ...
