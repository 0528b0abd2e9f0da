"""The commands ``show``, ``credit`` and ``report``, and the observer ``report``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from ale.plugin import BuildContext, Component, doc, ge, gt, hookimpl

if TYPE_CHECKING:
    import click


@frozen(kw_only=True)
class ReportOptions:
    """One page about the run, in its directory, when it ends."""

    episodes: int = field(
        default=200,
        validator=ge(0),
        metadata=doc("Hold at most this many whole, to be opened turn by turn."),
    )
    megabytes: float = field(
        default=8.0,
        validator=ge(0),
        metadata=doc("Stop before these take more (10^6 bytes)."),
    )
    largest_run_mb: float = field(
        default=1000.0,
        validator=gt(0),
        metadata=doc("A run with more episodes than this, in MB, is left to `ale report`."),
    )


def _build(options: ReportOptions, context: BuildContext) -> object:
    from ale_inspect.observer import Reporter

    return Reporter(options=options)


@hookimpl
def ale_observers() -> Sequence[Component[ReportOptions, object]]:
    """A page about the run when it ends."""
    return [
        Component("report", ReportOptions, _build, summary="Writes report.html when the run ends.")
    ]


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale show``, ``ale credit`` and ``ale report``."""
    from ale_inspect.commands import credit, report, show

    return [show, credit, report]
