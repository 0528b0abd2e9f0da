"""Registers the observer ``console``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale_observe_console.options import ConsoleOptions


def _build(options: ConsoleOptions, context: BuildContext) -> object:
    from ale_observe_console.observer import make

    return make(options, environ=context.environ, monotonic=context.monotonic)


@hookimpl
def ale_observers() -> Sequence[Component[ConsoleOptions, object]]:
    """Register the observer ``console``."""
    return [
        Component(
            "console",
            "ale_observe_console.options:ConsoleOptions",
            _build,
            summary="Shows progress on standard error.",
        )
    ]
