"""Registers the trainers ``export`` and ``none``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Trainer


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Trainer]]:
    """Register ``export`` and ``none``."""
    return [
        Component(
            "export",
            "ale_trainer_export.options:ExportOptions",
            "ale_trainer_export.trainer:export_trainer",
            summary="Writes a weighted data set; the policy is not changed.",
        ),
        Component(
            "none",
            None,
            "ale_trainer_export.none:NoTrainer",
            summary="For dry runs: learns and writes nothing.",
        ),
    ]
