"""The executor and the launcher ``ray``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Executor, Launcher

_INSTALL = 'pip install "ray>=2.55,<3"'


@hookimpl
def ale_executors() -> Sequence[Component[Any, Executor]]:
    """Register ``ray``."""
    return [
        Component(
            "ray",
            "ale_ray.options:RayOptions",
            "ale_ray.executor:RayExecutor",
            summary="Runs episodes on the nodes of a Ray cluster.",
            probe=lambda: Probe.of_package("ray", remedy=_INSTALL),
        )
    ]


@hookimpl
def ale_launchers() -> Sequence[Component[Any, Launcher]]:
    """Register ``ray``."""
    return [
        Component(
            "ray",
            "ale_ray.options:RayLaunchOptions",
            "ale_ray.launcher:RayLauncher",
            summary="Starts the processes where a Ray cluster has room for them.",
            probe=lambda: Probe.of_package("ray", remedy=_INSTALL),
        )
    ]
