"""The commands that read stored runs, and the observers ``report`` and ``store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_observers() -> Sequence[Component[Any, object]]:
    """Register the observers ``report`` and ``store``."""
    return [
        Component(
            "report",
            "ale_look.inspect.options:ReportOptions",
            "ale_look.inspect.observer:Reporter",
            summary="Writes report.html when the run ends.",
        ),
        Component(
            "store",
            "ale_look.store.options:StoreOptions",
            "ale_look.store.observer:Updating",
            summary="Keeps a database of runs up to date.",
        ),
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``show``, ``report``, ``runs`` and ``view``, and ``harbor-job`` to ``data``."""
    from ale_look.inspect.commands import report
    from ale_look.results.command import data, show
    from ale_look.store.episodes_command import runs
    from ale_look.view.command import view

    return {"Look": [show, view, report, runs], "Data and training": [data]}
