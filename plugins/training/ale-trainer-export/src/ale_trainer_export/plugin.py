"""Registers the trainers ``export`` and ``none``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.errors import InputError
from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Trainer
    from ale_trainer_export.options import ExportOptions


def _build(options: ExportOptions, context: BuildContext) -> Trainer:
    from ale_trainer_export.trainer import ExportTrainer

    path = options.path
    if path is None:
        if context.run_directory is None:
            raise InputError.of("needed where there is no run directory", path="trainer.path")
        path = context.run_directory / "export" / "rows.jsonl"
    return ExportTrainer(path, run_id=context.run_id, min_abs_weight=options.min_abs_weight)


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Trainer]]:
    """Register ``export`` and ``none``."""
    return [
        Component(
            "export",
            "ale_trainer_export.options:ExportOptions",
            _build,
            summary="Writes a weighted data set; the policy is not changed.",
        ),
        Component(
            "none",
            None,
            "ale_trainer_export.none:NoTrainer",
            summary="For dry runs: learns and writes nothing.",
        ),
    ]
