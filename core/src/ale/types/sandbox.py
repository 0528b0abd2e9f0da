"""What a sandbox is asked for, what it can give, and what a command in it gave."""

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
    "list-sessions",
    "open-sibling",
    "service-containers",
    "switch-user",
]
"""What some sandboxes can do beyond `ale.protocols.Sandbox`; `ale.protocols.FEATURES` has the
protocol of each."""


@record
class SandboxSpec:
    """One sandbox, as a task and a config together want it."""

    image: str | None = None
    build: str | None = None
    workdir: str | None = None
    """Relative to the image's own working directory; None leaves it to the backend's options."""
    network: bool | None = None
    """What the task says; None leaves it to the backend's options. False always wins."""
    allowed_hosts: tuple[str, ...] = ()
    """What is reached where `network` is False, as in `Constraints`."""
    env: Mapping[str, str] = field(factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    user: str | None = None
    """What the task says; None leaves it to the backend's options and the image."""
    agent_user: str | None = None
    """User of commands from the end of the set-up on; a copy (fork or restored snapshot) starts
    with it. Only where the backend has the feature ``agent-user``."""
    tags: Mapping[str, str] = field(factory=dict)
    """Found again by these after a crash: ``run``, ``episode`` and what the backend adds."""


@record
class ExecResult:
    """What a command gave. `exit_code` is the true one: 128 + n when signal n ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    """Output was longer than asked for; head and tail are kept."""
    duration_s: float = 0.0


@record
class Capabilities:
    """What a backend gives. What is promised here is tested by the contract kit, both ways.

    `limits` names what holds for each of ``cpu``, ``memory``, ``processes``, ``file_size``,
    ``disk``: ``enforced``, ``best-effort`` or ``none``.
    """

    isolation: IsolationLevel
    network_isolation: bool
    filesystem_isolation: bool
    process_isolation: bool
    fork: ForkCost
    snapshot: bool
    images: bool
    """Starts from a container image."""
    limits: Mapping[str, Enforcement] = field(factory=dict)
    features: tuple[SandboxFeature, ...] = ()
    """Optional capabilities of its sandboxes; a task may require some."""
    notes: tuple[str, ...] = ()
    """What it can't stop, in words, for ``ale doctor`` and the run's manifest."""


@record
class SandboxInfo:
    """One sandbox as ``ale sandbox list`` shows it."""

    id: str
    backend: str
    tags: Mapping[str, str]
    owner_alive: bool
    age_s: float
    detail: str = ""
