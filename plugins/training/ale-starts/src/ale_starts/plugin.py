"""Registers the start schemes and the commands ``show forks`` and ``data values``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import StartScheme


@hookimpl
def ale_starts() -> Sequence[Component[Any, StartScheme]]:
    """Register ``initial``, ``rollback``, ``parallel`` and ``prefixes``."""
    return [
        Component(
            "initial",
            "ale_starts.options:InitialOptions",
            "ale_starts.build:initial",
            summary="Every rollout starts at the task's own beginning.",
        ),
        Component(
            "rollback",
            "ale_starts.options:RollbackOptions",
            "ale_starts.build:rollback",
            summary="Starts before an expert's last turn and moves back as success recovers.",
        ),
        Component(
            "parallel",
            "ale_starts.options:ParallelOptions",
            "ale_starts.build:parallel",
            summary="Starts at several of an expert's turns at once, drawn for each step.",
        ),
        Component(
            "prefixes",
            "ale_starts.options:PrefixOptions",
            "ale_starts.build:prefixes",
            summary="Starts after every prefix of stored episodes, to measure values.",
        ),
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Register ``ale show forks`` and ``ale data values``."""
    from ale_starts.commands import data, show

    return {"Look": [show], "Data and training": [data]}
