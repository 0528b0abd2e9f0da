"""Offers the sandbox ``local``. Nothing heavy is imported before `build`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import field, frozen

from ale.plugin import BuildContext, Component, Probe, doc, hookimpl
from ale.protocols import SandboxBackend
from ale_sandbox_process.options import HostOptions, at_least


@frozen(kw_only=True)
class LocalOptions(HostOptions):
    """Commands on the host itself, in a workspace of their own. Does not isolate."""

    memory_mb: int | None = field(
        default=8192,
        validator=at_least(16),
        metadata=doc("Private writable memory of each process, MiB; a task may ask for its own."),
    )
    processes: int | None = field(
        default=4096,
        validator=at_least(8),
        metadata=doc("Processes and threads beyond those that run when the backend starts."),
    )


def build(options: LocalOptions, context: BuildContext) -> SandboxBackend:
    """The backend. Touches nothing on disk until the first sandbox is opened."""
    from ale_sandbox_local.backend import LocalBackend

    return LocalBackend(options, context)


def probe() -> Probe:
    """Linux with pidfds and a shell is all that is needed."""
    if not sys.platform.startswith("linux"):
        return Probe(usable=False, reason=f"needs Linux, found {sys.platform}")
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/stat").exists():
        return Probe(usable=False, reason="needs /proc and pidfd_open (Linux 5.3)")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Probe(usable=False, reason=f"pidfd_open is refused: {error.strerror}")
    if not os.access("/bin/sh", os.X_OK):
        return Probe(usable=False, reason="there is no /bin/sh")
    from ale_sandbox_local import capabilities, limits

    return Probe(
        usable=True,
        reason="best effort: no isolation of network, files or processes",
        facts=capabilities.in_words(limits.facts_of("/bin/sh")),
    )


@hookimpl
def ale_sandboxes() -> Sequence[Component[LocalOptions, SandboxBackend]]:
    """One sandbox: ``local``."""
    return [
        Component(
            "local",
            LocalOptions,
            build,
            probe=probe,
            priority=1,
            summary="The host itself, in a workspace per sandbox. Best effort, no isolation.",
        )
    ]
