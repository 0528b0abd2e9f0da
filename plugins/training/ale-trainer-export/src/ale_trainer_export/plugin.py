"""Offers the trainer ``export``."""

from collections.abc import Sequence
from pathlib import Path

from attrs import field, frozen

from ale.errors import InputError, Problem
from ale.plugin import BuildContext, Component, doc, ge, hookimpl
from ale.protocols import Trainer


@frozen(kw_only=True)
class ExportOptions:
    """Writes a weighted data set; the policy is not changed."""

    path: Path | None = field(
        default=None,
        metadata=doc("File to write; export/rows.jsonl in the run directory if null."),
    )
    min_abs_weight: float = field(
        default=0.0,
        validator=ge(0),
        metadata=doc(
            "Leave out turns none of whose chunks has a weight this far from 0; any number above "
            "0 leaves out those that teach nothing."
        ),
    )


def _build(options: ExportOptions, context: BuildContext) -> Trainer:
    from ale_trainer_export.trainer import ExportTrainer

    path = options.path
    if path is None:
        if context.run_directory is None:
            raise InputError(
                [Problem(path="trainer.path", message="needed where there is no run directory")]
            )
        path = context.run_directory / "export" / "rows.jsonl"
    return ExportTrainer(path, run_id=context.run_id, min_abs_weight=options.min_abs_weight)


@hookimpl
def ale_trainers() -> Sequence[Component[ExportOptions, Trainer]]:
    """A data set instead of a gradient."""
    return [
        Component(
            "export",
            ExportOptions,
            _build,
            summary="Writes a weighted data set; the policy is not changed.",
        )
    ]
