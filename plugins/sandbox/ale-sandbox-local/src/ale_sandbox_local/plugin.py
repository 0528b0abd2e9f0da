"""Registers the sandbox ``local``. Heavy imports wait for `build`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale_sandbox_local.options import LocalOptions


def build(options: LocalOptions, context: BuildContext) -> SandboxBackend:
    """The backend. Touches nothing on disk until the first sandbox is opened.

    Raises:
        NotUsableError: this is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise NotUsableError(f"needs Linux, found {sys.platform}")
    from ale_sandbox_local.backend import LocalBackend

    return LocalBackend(options, context)


def probe() -> Probe:
    """Linux with pidfds and a shell are the only requirements."""
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
        facts=capabilities.describe(limits.facts_of("/bin/sh")),
    )


@hookimpl
def ale_sandboxes() -> Sequence[Component[LocalOptions, SandboxBackend]]:
    """One sandbox: ``local``."""
    return [
        Component(
            "local",
            "ale_sandbox_local.options:LocalOptions",
            build,
            probe=probe,
            priority=1,
            summary="The host itself, in a workspace per sandbox. Best effort, no isolation.",
        )
    ]
