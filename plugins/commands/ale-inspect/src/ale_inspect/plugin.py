"""The commands ``show``, ``credit`` and ``report``, and the observer ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale_inspect.options import ReportOptions


def _build(options: ReportOptions, context: BuildContext) -> object:
    from ale_inspect.observer import Reporter

    return Reporter(options=options)


@hookimpl
def ale_observers() -> Sequence[Component[ReportOptions, object]]:
    """Register the observer ``report``."""
    return [
        Component(
            "report",
            "ale_inspect.options:ReportOptions",
            _build,
            summary="Writes report.html when the run ends.",
        )
    ]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale show``, ``ale credit`` and ``ale report``."""
    from ale_inspect.commands import credit, report, show

    return [show, credit, report]
