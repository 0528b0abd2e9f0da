"""Sandboxes: specification, capabilities, and results of commands."""

from collections.abc import Mapping
from typing import Literal

from attrs import field

from ale.types._record import record

ForkCost = Literal["copy", "layer", "replay"]
IsolationLevel = Literal["none", "process", "namespace", "container", "vm"]
Enforcement = Literal["enforced", "best-effort", "none"]
SandboxFeature = Literal[
    "agent-user",
    "change-network",
    "judge",
    "list-sessions",
    "open-sibling",
    "scratch-folder",
    "service-containers",
    "switch-user",
]
"""Features of some sandboxes beyond `ale.protocols.Sandbox`; `ale.protocols.FEATURES` has the
protocol of each."""


KEPT = "kept"
"""Tag of a sandbox whose snapshots outlive their run: a path. Each stays while a file there has its
reference, however often a backend prunes."""


@record
class SandboxSpec:
    """The sandbox that a task and a config together require."""

    image: str | None = None
    build: str | None = None
    workdir: str | None = None
    """Relative to the image's own working directory; None leaves it to the backend's options."""
    network: bool | None = None
    """Given by the task; None leaves it to the backend's options. False takes precedence."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts reachable although `network` is False, as in `Constraints`."""
    env: Mapping[str, str] = field(factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    user: str | None = None
    """Given by the task; None leaves it to the backend's options and the image."""
    agent_user: str | None = None
    """User that commands run as after the set-up; a copy (fork or restored snapshot) starts with
    this user. Only if the backend has the feature ``agent-user``."""
    requires: tuple[SandboxFeature, ...] = ()
    """Features that will be used; what a sandbox needs only for other features may be left out."""
    tags: Mapping[str, str] = field(factory=dict)
    """Tags that identify it after a crash: ``run``, ``episode`` and what the backend adds."""


@record
class Egress:
    """Connections between a sandbox and one host outside."""

    host: str
    """As it was asked for, by whatever ran in the sandbox: hostile text. Empty if no host was
    named, or for further hosts than there are rows."""
    port: int
    address: str = ""
    """The address that was connected."""
    outcome: Literal["passed", "refused", "unreached"] = "passed"
    why: str = ""
    """Why nothing passed."""
    connections: int = 0
    sent: int = 0
    """Bytes to the host."""
    received: int = 0
    """Bytes from the host."""


@record
class EgressLedger:
    """Connections that left a sandbox in one episode, and those that were refused."""

    rows: tuple[Egress, ...] = ()
    unrecorded: str = ""
    """Traffic that no row holds, in words. Empty if nothing else can have left."""


@record
class ExecResult:
    """The result of a command. `exit_code` is the real one: 128 + n when signal n ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    """Output exceeded the limit; head and tail are included."""
    duration_s: float = 0.0


@record
class CarriedChange:
    """One path that was changed in the agent's sandbox, or in a judge."""

    path: str
    """Absolute; of "unseen", why."""
    kind: Literal["added", "changed", "removed", "unseen"]
    """Against the image. A folder is "removed" if the image's own content of it is. "unseen": what
    came and is gone again was not followed, as this machine follows no more for this user."""
    only_longer: bool = False
    """The image's file is the beginning of this one."""
    link: str = ""
    """The text of a link of the agent's; empty for anything else."""


@record
class Capabilities:
    """The features and limits of a backend. The contract kit tests these claims in both directions.

    `limits` has the enforcement of each of ``cpu``, ``memory``, ``processes``, ``file_size``,
    ``disk``: ``enforced``, ``best-effort`` or ``none``.
    """

    isolation: IsolationLevel
    network_isolation: bool
    filesystem_isolation: bool
    process_isolation: bool
    fork: ForkCost
    snapshot: bool
    images: bool
    """Its sandboxes start from a container image."""
    limits: Mapping[str, Enforcement] = field(factory=dict)
    system_writable: bool = False
    """Commands of its default user can replace the programs that grading runs, such as Python."""
    features: tuple[SandboxFeature, ...] = ()
    """Optional capabilities of its sandboxes; a task may require some."""
    notes: tuple[str, ...] = ()
    """Limits of the backend's isolation, in words, for ``ale doctor`` and the run's manifest."""


@record
class ImageInfo:
    """One image that a sandbox backend has made, as ``ale sandbox images`` shows it."""

    id: str
    backend: str
    names: tuple[str, ...] = ()
    kind: str = ""
    """``build``, of a task's Dockerfile; ``snapshot`` or ``fork``, of a sandbox."""
    size_bytes: int = 0
    """With all its layers, which other images may share."""
    layers: Mapping[str, int] = field(factory=dict)
    """Bytes of each layer by a name that images which share it have in common; empty: not known."""
    age_s: float = 0.0


@record
class SandboxInfo:
    """One sandbox as ``ale sandbox list`` shows it."""

    id: str
    backend: str
    tags: Mapping[str, str]
    owner_alive: bool
    age_s: float
    detail: str = ""
    kept: bool = False
    """A state that a run keeps, which no `prune` removes."""
