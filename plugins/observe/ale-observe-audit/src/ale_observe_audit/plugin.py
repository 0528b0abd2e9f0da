"""The observer ``audit`` and the command ``audit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale_observe_audit.options import AuditOptions


def _build(options: AuditOptions, context: BuildContext) -> object:
    from ale_observe_audit.observer import Auditor

    return Auditor(options)


@hookimpl
def ale_observers() -> Sequence[Component[AuditOptions, object]]:
    """Register the observer ``audit``."""
    summary = "Writes every event as a line of a hash chain."
    return [Component("audit", "ale_observe_audit.options:AuditOptions", _build, summary=summary)]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale audit``."""
    from ale_observe_audit.command import audit

    return [audit]
