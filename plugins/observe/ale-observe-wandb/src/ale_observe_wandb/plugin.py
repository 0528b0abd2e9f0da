"""Registers the observer ``wandb``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale_observe_wandb.options import WandbOptions


def probe() -> Probe:
    """Is the SDK installed?"""
    return Probe.of_package("wandb", remedy='pip install "wandb>=0.30,<1"')


def _build(options: WandbOptions, context: BuildContext) -> object:
    probe().check()
    if options.mode != "online":
        # Must be set before the import: otherwise wandb sends usage data even when offline.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    from ale_observe_wandb.sink import make

    return make(options)


@hookimpl
def ale_observers() -> Sequence[Component[WandbOptions, object]]:
    """Register the observer ``wandb``."""
    return [
        Component(
            "wandb",
            "ale_observe_wandb.options:WandbOptions",
            _build,
            summary="Sends metrics to Weights & Biases, offline by default.",
            probe=probe,
        )
    ]
