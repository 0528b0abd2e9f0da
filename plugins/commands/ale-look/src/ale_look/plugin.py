"""The commands that read stored runs, and the observers ``report`` and ``store``."""

from __future__ import annotations

from collections.abc import Sequence
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
def ale_commands() -> Sequence[click.Command]:
    """Add ``show``, ``credit``, ``report``, ``results``, ``harbor-job``, ``runs`` and ``traj``."""
    from ale_look.inspect.commands import credit, report, show
    from ale_look.results.command import harbor_job, results
    from ale_look.store.runs_command import runs
    from ale_look.store.traj_command import traj

    return [show, credit, report, results, harbor_job, runs, traj]
