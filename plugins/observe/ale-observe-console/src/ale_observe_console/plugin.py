"""Offers the observer ``console``."""

from collections.abc import Sequence
from typing import Literal

from attrs import field, frozen

from ale.plugin import BuildContext, Component, doc, ge, gt, hookimpl

Mode = Literal["auto", "terminal", "plain", "off"]


@frozen(kw_only=True)
class ConsoleOptions:
    """Progress on standard error."""

    mode: Mode = field(
        default="auto",
        metadata=doc(
            "terminal redraws a few lines in place, plain writes a line now and then, off writes "
            "nothing; auto takes terminal where standard error is one."
        ),
    )
    refresh_s: float = field(
        default=0.1, validator=gt(0), metadata=doc("Least seconds between two redraws.")
    )
    quiet_interval_s: float = field(
        default=30.0, validator=gt(0), metadata=doc("Seconds between two lines in mode plain.")
    )
    name_running: int = field(
        default=3,
        validator=ge(0),
        metadata=doc("How many of the longest-running episodes to name on a terminal."),
    )


def _build(options: ConsoleOptions, context: BuildContext) -> object:
    from ale_observe_console.observer import make

    return make(options, environ=context.environ, monotonic=context.monotonic)


@hookimpl
def ale_observers() -> Sequence[Component[ConsoleOptions, object]]:
    """Progress for people."""
    return [
        Component(
            "console", ConsoleOptions, _build, summary="Progress on standard error, for people."
        )
    ]
