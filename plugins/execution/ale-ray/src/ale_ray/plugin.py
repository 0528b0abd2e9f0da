"""The executor and the launcher ``ray``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Executor, Launcher
    from ale_ray.options import RayLaunchOptions, RayOptions


def _build(options: RayOptions, context: BuildContext) -> Executor:
    from ale_ray.executor import RayExecutor

    return RayExecutor(options)


@hookimpl
def ale_executors() -> Sequence[Component[Any, Executor]]:
    """Register ``ray``."""
    return [
        Component(
            "ray",
            "ale_ray.options:RayOptions",
            _build,
            summary="Runs episodes on the nodes of a Ray cluster.",
            probe=lambda: Probe.of_package("ray", remedy="pip install ale-ray"),
        )
    ]


def _launcher(options: RayLaunchOptions, context: BuildContext) -> Launcher:
    from ale_ray.launcher import RayLauncher

    return RayLauncher(options)


@hookimpl
def ale_launchers() -> Sequence[Component[Any, Launcher]]:
    """Register ``ray``."""
    return [
        Component(
            "ray",
            "ale_ray.options:RayLaunchOptions",
            _launcher,
            summary="Starts the processes where a Ray cluster has room for them.",
            probe=lambda: Probe.of_package("ray", remedy="pip install ale-ray"),
        )
    ]
