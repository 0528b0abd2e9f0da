"""The commands ``show``, ``credit`` and ``report``, and the observer ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_observers() -> Sequence[Component[Any, object]]:
    """Register the observer ``report``."""
    return [
        Component(
            "report",
            "ale_inspect.options:ReportOptions",
            "ale_inspect.observer:Reporter",
            summary="Writes report.html when the run ends.",
        )
    ]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale show``, ``ale credit`` and ``ale report``."""
    from ale_inspect.commands import credit, report, show

    return [show, credit, report]
