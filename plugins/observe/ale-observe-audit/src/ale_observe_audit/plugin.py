"""The observer ``audit`` and the command ``audit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale_observe_audit.options import AuditOptions


@hookimpl
def ale_observers() -> Sequence[Component[AuditOptions, object]]:
    """Register the observer ``audit``."""
    summary = "Writes every event as a line of a hash chain."
    return [
        Component(
            "audit",
            "ale_observe_audit.options:AuditOptions",
            "ale_observe_audit.observer:Auditor",
            summary=summary,
        )
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``ale audit``."""
    from ale_observe_audit.command import audit

    return {"Look": [audit]}
