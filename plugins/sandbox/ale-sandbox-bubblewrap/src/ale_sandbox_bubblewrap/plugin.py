"""Offers the sandbox ``bubblewrap``. Nothing heavy is imported before `build`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen, validators

from ale.plugin import BuildContext, Component, Probe, doc, gt, hookimpl
from ale.protocols import SandboxBackend
from ale_sandbox_process.options import HostOptions, at_least


def _not_the_root(_: Any, attribute: Any, value: tuple[Path, ...]) -> None:
    for path in value:
        if path == Path("/") or ".." in path.parts:
            raise ValueError(f"{attribute.name}: {path} is not a folder or file to share")


@frozen(kw_only=True)
class BubblewrapOptions(HostOptions):
    """Namespaces of its own, a read-only host below a writable layer, limits. No daemon."""

    network: bool | None = field(
        default=None,
        metadata=doc("Share the host's network. Default: when the task asks. false: never."),
    )
    writable_system: bool = field(
        default=True,
        metadata=doc("Let a task change /usr, in its own layer. false: bound read-only."),
    )
    allowlist_paths: tuple[Path, ...] = field(
        default=(),
        validator=_not_the_root,
        metadata=doc("Paths of the host that are bound read-only, under the same names."),
    )
    memory_mb: int | None = field(
        default=4096,
        validator=at_least(64),
        metadata=doc("Memory of the sandbox, MiB; a task may ask for its own. null: no limit."),
    )
    processes: int | None = field(
        default=1024,
        validator=at_least(8),
        metadata=doc("Processes and threads in the sandbox."),
    )
    cpus: float | None = field(
        default=None,
        validator=validators.optional(gt(0)),
        metadata=doc("Processors that it may keep busy; a task may ask for its own."),
    )
    disk_mb: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("Keep what is written in memory, at most so much, MiB. null: on disk."),
    )


def build(options: BubblewrapOptions, context: BuildContext) -> SandboxBackend:
    """The backend. Starts nothing until the first sandbox is opened.

    Raises:
        NotUsableError: this machine can't; says what would make it so.
    """
    from ale_sandbox_bubblewrap.backend import BubblewrapBackend

    return BubblewrapBackend(options, context)


def probe() -> Probe:
    """Can a sandbox be made here, and what will hold in it?"""
    from ale_sandbox_bubblewrap import capabilities, facts

    found = facts.find()
    if found.missing is not None:
        return Probe(usable=False, reason=found.missing, remedy=found.remedy)
    return Probe(
        usable=True,
        reason=f"bubblewrap {found.version}",
        facts=capabilities.in_words(found),
    )


@hookimpl
def ale_sandboxes() -> Sequence[Component[BubblewrapOptions, SandboxBackend]]:
    """One sandbox: ``bubblewrap``."""
    return [
        Component(
            "bubblewrap",
            BubblewrapOptions,
            build,
            probe=probe,
            priority=15,
            summary="Linux namespaces, layers and limits around each sandbox. No daemon.",
        )
    ]
