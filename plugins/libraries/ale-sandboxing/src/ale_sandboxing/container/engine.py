"""What is said to a container engine, and what it answers, in terms of no engine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import SandboxError
from ale_sandboxing.container.carrying import Layers


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
    parts: bool = True
    """Containers with a network do not reach each other."""
    layered: bool = False
    """It keeps the files of containers in overlays, in folders of its own machine."""
    takes_rules: bool = True
    """It can be told which system calls to refuse; else it refuses those of its own list."""

    @property
    def filters(self) -> bool:
        """Its containers are refused the calls of `ale_sandboxing.process.seccomp`."""
        return self.seccomp and self.takes_rules


@frozen(kw_only=True)
class Image:
    """An image that is there."""

    id: str
    workdir: str
    """Empty where the image sets none."""
    entrypoint: Sequence[str] = ()
    """What the image would start. The supervisor is started in its place."""
    user: str = ""
    """Empty where the image sets none, which is root."""
    health: Mapping[str, Any] | None = None
    """Its health check, in the words of Docker's interface. No engine runs it."""
    labels: Mapping[str, str] = field(factory=dict)
    variables: Sequence[str] = ()
    """Its environment, as ``NAME=VALUE``."""


@frozen(kw_only=True)
class Build:
    """An image to build from a folder."""

    folder: Path
    dockerfile: str
    """Its name in the folder."""
    tag: str
    labels: Mapping[str, str]
    cached: bool = True
    """Layers of earlier builds may be used."""
    network: bool = True
    """Its commands have the engine's network, rather than none."""

    @property
    def network_mode(self) -> str | None:
        """As the engines' APIs name it; None for their default."""
        return None if self.network else "none"


@frozen(kw_only=True)
class Volume:
    """A volume by its name, and where the container sees it."""

    name: str
    target: str
    read_only: bool


@frozen(kw_only=True)
class Mount:
    """A volume or path that a container sees beside its layers."""

    kind: str
    """``volume``, ``bind`` or ``tmpfs``."""
    source: str
    """Name of the volume, path on the engine's machine, or options of a file system in memory."""
    target: str
    read_only: bool


@frozen(kw_only=True)
class About:
    """Facts about a container that is there."""

    id: str
    layers: Layers | None
    """None where the engine keeps its files in another way than an overlay."""
    mounts: Sequence[Mount]
    pid: int
    """Number of its first process."""


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
    offline: bool = False
    """Never connected to anything: the engine need not prepare for it. Process 1 then writes
    ``/etc/hosts``."""
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
    binds: Sequence[Path] = ()
    """Paths of the host, read-only in the container under the same names."""
    volumes: Sequence[str] = ()
    """Paths that are writable in spite of `read_only`."""
    closed: Sequence[str] = ()
    """Folders in memory, which engines leave writable, that are to be read-only."""
    tmpfs: Mapping[str, int] = field(factory=dict)
    """Path to size in bytes."""
    runtime: str | None = None
    joins: str | None = None
    """Id of the container whose network is this one's, in place of one of its own."""
    shared: Sequence[Mount] = ()
    """Volumes and paths that it has together with that one."""
    filtered: bool = False
    """Its programs are refused the calls of `ale_sandboxing.process.seccomp`."""
    sysctls: Mapping[str, str] = field(factory=dict)


@frozen(kw_only=True)
class Found:
    """A container, image or volume as the engine lists it."""

    id: str
    labels: Mapping[str, str]
    names: Sequence[str] = ()
    """Tags of an image."""
    size: int = 0
    """Bytes of an image."""
    created: float = 0.0
    """When an image was made, in seconds since the epoch."""


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

    mode: int
    """As `os.stat` gives it."""
    mtime: float
    """Seconds since 1970."""
    link: str
    """Where a link leads, resolved inside the container; empty for what is no link."""
