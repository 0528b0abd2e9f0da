"""What some tasks need of a sandbox beyond what every sandbox has: containers have it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from ale.errors import GradingError
from ale.protocols import Sandbox, Session
from ale.types import SandboxSpec


@runtime_checkable
class Sessions(Protocol):
    """Knows which shells are open in it."""

    @property
    def sessions(self) -> Sequence[Session]:
        """The oldest first."""
        ...


@runtime_checkable
class Users(Protocol):
    """Can go on as another user."""

    async def become(self, user: str | None) -> None:
        """None is the one that it began with."""
        ...

    def begins_as(self, user: str | None) -> None:
        """Go on as this one from the command on that says that the agent begins."""
        ...


@runtime_checkable
class Reaching(Protocol):
    """Can change what of the network it reaches."""

    async def reach(self, network: bool, hosts: Sequence[str] = ()) -> Mapping[str, str]:
        """All of it, or these hosts alone; the variables that programs find their way by."""
        ...


@runtime_checkable
class Opening(Protocol):
    """Can open another sandbox beside itself."""

    def another(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Removed on exit."""
        ...


class Service(Protocol):
    """Another container of the task."""

    async def exec(self, command: str, *, timeout_s: float, user: str | None = None) -> int | None:
        """The exit code of a shell line; None where it did not end in time."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        ...


@runtime_checkable
class Several(Protocol):
    """Is one of several containers."""

    async def service(self, name: str) -> Service:
        """One of the others. Raises `SandboxError` where there is none of that name."""
        ...


def unable(what: str) -> GradingError:
    """The error for a sandbox that is not of the kind that is needed."""
    return GradingError(f"this sandbox can't {what}; use 'docker' or 'podman'")
