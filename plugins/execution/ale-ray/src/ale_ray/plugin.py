"""The executor ``ray``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Executor
    from ale_ray.options import RayOptions


def _options() -> type[RayOptions]:
    from ale_ray.options import RayOptions

    return RayOptions


def _build(options: RayOptions, context: BuildContext) -> Executor:
    from ale_ray.executor import RayExecutor

    return RayExecutor(options)


@hookimpl
def ale_executors() -> Sequence[Component[Any, Executor]]:
    """Register ``ray``."""
    return [
        Component(
            "ray",
            _options,
            _build,
            summary="Episodes on the nodes of a Ray cluster.",
            probe=lambda: Probe.of_package("ray", remedy="pip install ale-ray"),
        )
    ]
