"""Options of the sandbox ``bubblewrap``."""

from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale_sandboxing.process.options import HostOptions


def _not_the_root(_: Any, attribute: Any, value: tuple[Path, ...]) -> None:
    for path in value:
        if path == Path("/") or ".." in path.parts:
            raise ValueError(f"{attribute.name}: {path} is not a folder or file to share")


@frozen(kw_only=True)
class BubblewrapOptions(HostOptions):
    """Linux namespaces, a writable layer over the read-only host, limits. No daemon."""

    network: bool | None = field(
        default=None,
        metadata=doc("Share the host's network. Default: if the task asks for it. false: never."),
    )
    writable_system: bool = field(
        default=False,
        metadata=doc("Let a task change /usr, in its own layer. false: /usr is read-only."),
    )
    allowlist_paths: tuple[Path, ...] = field(
        default=(),
        validator=_not_the_root,
        metadata=doc("Paths of the host that are bound read-only, under the same names."),
    )
    memory_mb: int | None = field(
        default=4096,
        validator=optional(ge(64)),
        metadata=doc(
            "Memory of the sandbox, MiB; a task may ask for its own limit. null: no limit."
        ),
    )
    processes: int | None = field(
        default=1024,
        validator=optional(ge(8)),
        metadata=doc("Processes and threads in the sandbox."),
    )
    cpus: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Processors that the sandbox may use; a task may ask for its own number."),
    )
    disk_mb: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Store changes in memory, at most this many MiB. null: on disk."),
    )
