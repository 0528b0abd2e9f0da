"""Registers the observer ``tensorboard``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale_observe_tensorboard.options import TensorBoardOptions


def probe() -> Probe:
    """Is the package installed?"""
    return Probe.of_package("tensorboard", remedy='pip install "tensorboard>=2.16,<3"')


def _build(options: TensorBoardOptions, context: BuildContext) -> object:
    probe().check()
    from ale_observe_tensorboard.sink import make

    return make(options)


@hookimpl
def ale_observers() -> Sequence[Component[TensorBoardOptions, object]]:
    """Register the observer ``tensorboard``."""
    return [
        Component(
            "tensorboard",
            "ale_observe_tensorboard.options:TensorBoardOptions",
            _build,
            summary="Writes metrics as TensorBoard event files.",
            probe=probe,
        )
    ]
