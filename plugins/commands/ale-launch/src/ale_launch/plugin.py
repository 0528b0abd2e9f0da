"""The command ``launch`` and the launchers ``local`` and ``torchrun``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Launcher


@hookimpl
def ale_launchers() -> Sequence[Component[Any, Launcher]]:
    """Register ``local`` and ``torchrun``."""
    return [
        Component(
            "local",
            "ale_launch.options:LocalOptions",
            "ale_launch.local:LocalLauncher",
            summary="Starts the processes on this machine.",
        ),
        Component(
            "torchrun",
            "ale_launch.options:TorchrunOptions",
            "ale_launch.torchrun:TorchrunLauncher",
            summary="Starts the trainer's ranks with torchrun, on one machine or several.",
            probe=lambda: Probe.of_package("torch", remedy="pip install torch"),
        ),
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``ale launch``."""
    from ale_launch.command import launch

    return {"Models and machines": [launch]}
