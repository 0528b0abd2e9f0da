"""Registers the middleware ``hints``."""

from collections.abc import Sequence

from ale.plugin import BuildContext, Component, hookimpl
from ale.protocols import Middleware
from ale_hints.options import HintOptions


def _build(options: HintOptions, context: BuildContext) -> Middleware:
    from ale_hints.hints import build

    return build(options)


@hookimpl
def ale_middleware() -> Sequence[Component[HintOptions, Middleware]]:
    """Register ``hints``."""
    summary = "Adds a text to the system message: one for all, one per task, or stored feedback."
    return [Component("hints", HintOptions, _build, summary=summary)]
