"""What can be set for containers, whatever engine runs them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale.strict import Former

Capability = Literal[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
]
DOCKER_DEFAULT = "DOCKER_DEFAULT"
"""Stands for all of them: they are those that Docker gives to a container by itself."""


def _absolute(_: Any, attribute: Any, value: str | None) -> None:
    if value is not None and not value.startswith("/"):
        raise ValueError(f"{attribute.name} must be an absolute path in the container")


@frozen(kw_only=True)
class ContainerOptions:
    """One container per task."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "max_parallel": Former(4),
    }

    image: str = field(
        default="python:3.12-slim",
        metadata=doc("Image to start when the task names neither image nor build."),
    )
    pull: Literal["missing", "never"] = field(
        default="missing", metadata=doc("Whether a missing image is fetched.")
    )
    build: Literal["changed", "always", "offline"] = field(
        default="changed",
        metadata=doc(
            "When the image of a task's Dockerfile is built: if its files or its base images have "
            "changed, or 'always', once in a run and without the engine's cache; 'offline' as "
            "'always', and its commands have no network, as `ale validate` tries (docker only)."
        ),
    )
    pull_silence_s: float = field(
        default=60.0,
        validator=gt(0),
        metadata=doc("Give up a pull after this many seconds without news of it."),
    )
    workdir: str | None = field(
        default=None,
        validator=_absolute,
        metadata=doc("Workspace in the container. Default: the image's own, else /workspace."),
    )
    user: str | None = field(
        default=None,
        metadata=doc("User, or user:group, that commands run as. Default: the image's own."),
    )
    network: bool | None = field(
        default=None,
        metadata=doc(
            "Connect the container to the network. Default: if the task asks for it. false: never."
        ),
    )
    env: Mapping[str, str] = field(
        factory=dict, metadata=doc("Environment variables; those of the task take precedence.")
    )
    cpus: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Processors the container may use at a time. Default: all."),
    )
    memory_mb: int | None = field(
        default=4096,
        validator=optional(ge(16)),
        metadata=doc("Memory of the container, MiB, without swap. null: no limit."),
    )
    processes: int | None = field(
        default=1024,
        validator=optional(ge(16)),
        metadata=doc(
            "Processes and threads in the container, beside 12 of its own. null: no limit."
        ),
    )
    cpu_s: int | None = field(
        default=3600,
        validator=optional(ge(1)),
        metadata=doc("CPU time of each process, seconds. null: no limit."),
    )
    file_size_mb: int | None = field(
        default=4096,
        validator=optional(ge(1)),
        metadata=doc("Size of each file that is written, MiB. null: no limit."),
    )
    open_files: int | None = field(
        default=4096,
        validator=optional(ge(32)),
        metadata=doc("Open files of each process. null: the engine's own limit."),
    )
    capabilities: tuple[Literal[Capability, "DOCKER_DEFAULT"], ...] = field(
        default=(),
        metadata=doc(
            "Linux capabilities to add back; all others are dropped. DOCKER_DEFAULT: the 14 that "
            "Docker grants by default."
        ),
    )
    new_privileges: bool = field(
        default=False,
        metadata=doc(
            "Let programs gain privileges, as sudo and su do. A command of any user may then "
            "become root."
        ),
    )
    allowlist_paths: tuple[Path, ...] = field(
        default=(),
        metadata=doc(
            "Host files and folders that the container sees under the same path, read-only."
        ),
    )
    read_only: bool = field(
        default=False,
        metadata=doc(
            "Only the workspace and /tmp can be written, not /dev/shm either. Such sandboxes "
            "can't fork."
        ),
    )
    tmp_mb: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Keep /tmp in memory, of this size in MiB. File transfers don't reach it."),
    )
    runtime: str | None = field(
        default=None,
        metadata=doc(
            "Runtime that starts the containers, by the engine's name for it: runc, crun, runsc."
        ),
    )


def capabilities_added(options: ContainerOptions) -> tuple[str, ...]:
    """Every capability that the container has."""
    added: dict[str, None] = {}
    for name in options.capabilities:
        added |= dict.fromkeys(get_args(Capability) if name == DOCKER_DEFAULT else (name,))
    if "SETUID" in added or options.new_privileges:
        # The supervisor has to end what has become another user.
        added["KILL"] = None
    return tuple(added)
