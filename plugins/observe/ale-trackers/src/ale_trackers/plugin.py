"""Registers the observers ``tensorboard`` and ``wandb``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale_trackers.tensorboard.options import TensorBoardOptions
    from ale_trackers.wandb.options import WandbOptions


def probe_tensorboard() -> Probe:
    """Is the package installed?"""
    return Probe.of_package("tensorboard", remedy='pip install "tensorboard>=2.16,<3"')


def probe_wandb() -> Probe:
    """Is the SDK installed?"""
    return Probe.of_package("wandb", remedy='pip install "wandb>=0.30,<1"')


def _tensorboard(options: TensorBoardOptions, context: BuildContext) -> object:
    probe_tensorboard().check()
    from ale_trackers.tensorboard.sink import make

    return make(options)


def _wandb(options: WandbOptions, context: BuildContext) -> object:
    probe_wandb().check()
    if options.mode != "online":
        # Must be set before the import: otherwise wandb sends usage data even when offline.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    from ale_trackers.wandb.sink import make

    return make(options)


@hookimpl
def ale_observers() -> Sequence[Component[Any, object]]:
    """Register the observers ``tensorboard`` and ``wandb``."""
    return [
        Component(
            "tensorboard",
            "ale_trackers.tensorboard.options:TensorBoardOptions",
            _tensorboard,
            summary="Writes metrics as TensorBoard event files.",
            probe=probe_tensorboard,
        ),
        Component(
            "wandb",
            "ale_trackers.wandb.options:WandbOptions",
            _wandb,
            summary="Sends metrics to Weights & Biases, offline by default.",
            probe=probe_wandb,
        ),
    ]
