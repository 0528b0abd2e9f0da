"""Registers the scorer, and the command that trains its head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import StepScorer


@hookimpl
def ale_step_scorers() -> Sequence[Component[Any, StepScorer]]:
    """Register the scorer."""
    return [
        Component(
            "prm",
            "ale_prm.options:PrmOptions",
            "ale_prm.scorer:prm",
            summary="A frozen model with a learned head: the value of the state after a step.",
        )
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``ale train prm``."""
    from ale_prm.commands import train

    return {"Data and training": [train]}
