"""Registers the sandbox ``bubblewrap``. Heavy imports wait for `build`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale_sandbox_bubblewrap.options import BubblewrapOptions


def build(options: BubblewrapOptions, context: BuildContext) -> SandboxBackend:
    """The backend. Starts nothing until the first sandbox is opened.

    Raises:
        NotUsableError: the machine lacks a requirement; the message names a fix.
    """
    if not sys.platform.startswith("linux"):
        raise NotUsableError(f"needs Linux, found {sys.platform}")
    from ale_sandbox_bubblewrap.backend import BubblewrapBackend

    return BubblewrapBackend(options, context)


def probe() -> Probe:
    """Check that a sandbox can be made here, and report its limits."""
    if not sys.platform.startswith("linux"):
        return Probe(usable=False, reason=f"needs Linux, found {sys.platform}")
    from ale_sandbox_bubblewrap import capabilities, facts

    found = facts.find()
    if found.missing is not None:
        return Probe(usable=False, reason=found.missing, remedy=found.remedy)
    return Probe(
        usable=True,
        reason=f"bubblewrap {found.version}",
        facts=capabilities.describe(found),
    )


@hookimpl
def ale_sandboxes() -> Sequence[Component[BubblewrapOptions, SandboxBackend]]:
    """One sandbox: ``bubblewrap``."""
    return [
        Component(
            "bubblewrap",
            "ale_sandbox_bubblewrap.options:BubblewrapOptions",
            build,
            probe=probe,
            priority=15,
            summary="Linux namespaces, layers and limits around each sandbox. No daemon.",
        )
    ]
