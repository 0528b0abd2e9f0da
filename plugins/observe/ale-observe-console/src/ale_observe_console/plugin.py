"""Registers the observer ``console``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale_observe_console.options import ConsoleOptions


@hookimpl
def ale_observers() -> Sequence[Component[ConsoleOptions, object]]:
    """Register the observer ``console``."""
    return [
        Component(
            "console",
            "ale_observe_console.options:ConsoleOptions",
            "ale_observe_console.observer:make",
            summary="Shows progress on standard error.",
        )
    ]
