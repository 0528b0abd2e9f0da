"""Registers the middleware ``hints``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Middleware
    from ale_hints.options import HintOptions


def _build(options: HintOptions, context: BuildContext) -> Middleware:
    from ale_hints.hints import build

    return build(options)


@hookimpl
def ale_middleware() -> Sequence[Component[HintOptions, Middleware]]:
    """Register ``hints``."""
    summary = (
        "Adds a text to the system message: one for all tasks, one per task, or stored feedback."
    )
    return [Component("hints", "ale_hints.options:HintOptions", _build, summary=summary)]
