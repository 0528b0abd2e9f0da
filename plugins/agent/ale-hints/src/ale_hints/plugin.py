"""Registers the middleware ``hints``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Middleware
    from ale_hints.options import HintOptions


@hookimpl
def ale_middleware() -> Sequence[Component[HintOptions, Middleware]]:
    """Register ``hints``."""
    summary = (
        "Adds a text to the system message: one for all tasks, one per task, or stored feedback."
    )
    return [
        Component(
            "hints", "ale_hints.options:HintOptions", "ale_hints.hints:build", summary=summary
        )
    ]
