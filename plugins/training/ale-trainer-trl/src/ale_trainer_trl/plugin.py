"""Registers the trainers ``dpo`` and ``grpo`` and the command ``train``; does not import TRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Trainer


def _probe() -> Probe:
    from ale_trainer_trl.learning.packages import REMEDY

    return Probe.of_package("trl", remedy=REMEDY)


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Trainer]]:
    """Register ``dpo`` and ``grpo``."""
    return [
        Component(
            "dpo",
            "ale_trainer_trl.options:DpoOptions",
            "ale_trainer_trl.build:dpo_trainer",
            summary="Preferences between the episodes of a step, by TRL's DPO.",
            probe=_probe,
            needs=("llm",),
        ),
        Component(
            "grpo",
            "ale_trainer_trl.options:GrpoOptions",
            "ale_trainer_trl.build:grpo_trainer",
            summary="Group-relative reinforcement on a step's episodes, by TRL's GRPO.",
            probe=_probe,
            needs=("llm",),
        ),
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Register ``ale train``."""
    from ale_trainer_trl.commands import train

    return {"Data and training": [train]}
