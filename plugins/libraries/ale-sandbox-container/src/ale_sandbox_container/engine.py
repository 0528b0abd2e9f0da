"""The interface to a container engine; an adapter over its SDK implements it.

Every method blocks and is called from threads, several at a time.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from ale.errors import SandboxError


class NotFoundError(SandboxError):
    """The engine does not know the image or container, or the container has no such path."""


class ConflictError(SandboxError):
    """The name is taken, or the thing is in use."""


@frozen(kw_only=True)
class Facts:
    """Version of the engine on this machine, and the limits it can enforce."""

    version: str
    runtime: str
    """What starts the containers: runc, crun, runsc."""
    cgroup: str
    """``v1`` or ``v2``."""
    holds_memory: bool
    holds_processes: bool
    holds_cpu: bool
    root_is_root: bool
    """Root in a container is root on the host: the engine maps no users."""
    seccomp: bool
    pauses: bool = True
    """A container can be stopped for a moment, which a copy of it needs."""


@frozen(kw_only=True)
class Image:
    """An image that is there."""

    id: str
    workdir: str
    """Empty where the image sets none."""
    entrypoint: Sequence[str] = ()
    """What the image would start. The supervisor is started in its place."""
    health: Mapping[str, Any] | None = None
    """Its health check, in the words of Docker's interface. No engine runs it."""
    labels: Mapping[str, str] = field(factory=dict)


@frozen(kw_only=True)
class Bind:
    """A host path, read-only in the container."""

    source: Path
    target: str


@frozen(kw_only=True)
class Volume:
    """A volume by its name, and where the container sees it."""

    name: str
    target: str
    read_only: bool


@frozen(kw_only=True)
class Plan:
    """A container to create. What has no field here is off: privileges, health checks."""

    name: str
    image: str
    entrypoint: Sequence[str]
    workdir: str
    labels: Mapping[str, str]
    env: Mapping[str, str] = field(factory=dict)
    user: str | None = None
    network: bool = False
    cpus: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    capabilities: Sequence[str] = ()
    """Added back after all have been dropped."""
    new_privileges: bool = False
    """Programs may gain some that who starts them lacks."""
    read_only: bool = False
    shell: Volume
    """The supervisor's shell. No program inside may read it."""
    binds: Sequence[Bind] = ()
    volumes: Sequence[str] = ()
    """Paths that are writable in spite of `read_only`."""
    tmpfs: Mapping[str, int] = field(factory=dict)
    """Path to size in bytes."""
    runtime: str | None = None


@frozen(kw_only=True)
class Found:
    """A container, image or volume as the engine lists it."""

    id: str
    labels: Mapping[str, str]
    running: bool = False


@frozen(kw_only=True)
class State:
    """State of a container."""

    id: str
    running: bool
    exit_code: int | None = None
    out_of_memory: bool = False
    pid: int = 0
    """Of its first process, on the engine's machine; 0 where it does not run."""
    health: str | None = None
    """``starting``, ``healthy`` or ``unhealthy``; None where no health check is on."""


@frozen(kw_only=True)
class Stat:
    """One path in a container, not followed where it is a link."""

    name: str
    size: int
    mode: int
    """As `os.stat` gives it."""
    mtime: float
    """Seconds since 1970."""
    link: str
    """Where a link leads, resolved inside the container; empty for what is no link."""


class Engine(Protocol):
    """A container engine.

    Every method raises SandboxError when the engine does not answer or refuses, in words that a
    person can act on; those that name an image or container raise NotFoundError.
    """

    @property
    def name(self) -> str:
        """``docker`` or ``podman``."""
        ...

    @property
    def url(self) -> str:
        """Where it listens: ``unix://`` or ``tcp://``."""
        ...

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What a connection to ``tcp://`` is encrypted and checked by."""
        ...

    @property
    def address(self) -> str | None:
        """Where docker compose reaches it; None where it can't."""
        ...

    @property
    def knows_buildkit(self) -> bool:
        """It builds by itself what of Docker's builders only BuildKit can."""
        ...

    def facts(self) -> Facts:
        """Its facts."""
        ...

    def image(self, ref: str) -> Image:
        """An image that is there already."""
        ...

    def pull(self, ref: str, *, silence_s: float, progress: Callable[[str], object]) -> None:
        """Fetch an image.

        Args:
            silence_s: give up when nothing is heard for so long.
            progress: called with a line for people.
        """
        ...

    def build(
        self,
        folder: Path,
        *,
        dockerfile: str,
        tag: str,
        labels: Mapping[str, str],
        log: Callable[[str], object],
    ) -> None:
        """Build an image from a folder. `log` gets every line of the build."""
        ...

    def commit(self, container: str, *, tag: str, labels: Mapping[str, str]) -> None:
        """Keep a container's files as an image, in one consistent state."""
        ...

    def images(self, label: str) -> Sequence[Found]:
        """Images with this label, untagged ones too."""
        ...

    def remove_image(self, ref: str) -> None:
        """Remove an image. Fine when it is gone already."""
        ...

    def create(self, plan: Plan) -> str:
        """Make a container; its id.

        Raises:
            ConflictError: the name is taken.
        """
        ...

    def start(self, container: str) -> None:
        """Start it."""
        ...

    def kill(self, container: str) -> None:
        """End every process in it, and return when they have ended. Fine when it is gone."""
        ...

    def remove(self, container: str) -> None:
        """Kill and remove it with its volumes. Fine when it is gone already."""
        ...

    def clear(self, project: str) -> None:
        """Remove what docker compose has made under this name: containers, networks, volumes."""
        ...

    def state(self, container: str) -> State:
        """Its state."""
        ...

    def containers(self, label: str) -> Sequence[Found]:
        """Containers with this label, ended ones too."""
        ...

    def prepare(self, container: str, argv: Sequence[str], user: str | None) -> str:
        """Describe one more process for a running container; the id to start it by."""
        ...

    def exit_code(self, prepared: str) -> int | None:
        """Of such a process, once it was started; None while it runs."""
        ...

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume. It is there until it is removed."""
        ...

    def remove_volume(self, name: str) -> None:
        """Remove a volume. Fine when it is gone already.

        Raises:
            ConflictError: a container uses it.
        """
        ...

    def volumes(self, label: str) -> Sequence[Found]:
        """Volumes with this label; the id is the name."""
        ...

    def run(
        self, container: str, argv: Sequence[str], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run one more process in a container; its exit code, None where it still runs then."""
        ...

    def connect(self, container: str, on: bool) -> None:
        """Put a running container into the engine's usual network, or take it out of it.

        Raises:
            UnsupportedError: a container that began without any can't be put into one.
        """
        ...

    def stat(self, container: str, path: str) -> Stat:
        """One path in a container, running or not."""
        ...

    def get(self, container: str, path: str) -> AbstractContextManager[Iterator[bytes]]:
        """A path and what is below it, as pieces of a tar stream."""
        ...

    def put(self, container: str, folder: str, data: Iterable[bytes]) -> None:
        """Unpack a tar stream in a folder of the container. A folder is never replaced by a file.

        Raises:
            IsADirectoryError: a file would have replaced a folder.
        """
        ...

    def close(self) -> None:
        """Close connections. May be called again."""
        ...
