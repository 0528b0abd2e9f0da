"""Registers the start schemes and the command ``forks``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import StartScheme
    from ale_starts.options import InitialOptions, ParallelOptions, RollbackOptions


def _initial(options: InitialOptions, context: BuildContext) -> StartScheme:
    from ale_starts.build import initial

    return initial(options, context)


def _rollback(options: RollbackOptions, context: BuildContext) -> StartScheme:
    from ale_starts.build import rollback

    return rollback(options, context)


def _parallel(options: ParallelOptions, context: BuildContext) -> StartScheme:
    from ale_starts.build import parallel

    return parallel(options, context)


@hookimpl
def ale_starts() -> Sequence[Component[Any, StartScheme]]:
    """Register ``initial``, ``rollback`` and ``parallel``."""
    return [
        Component(
            "initial",
            "ale_starts.options:InitialOptions",
            _initial,
            summary="Every rollout starts at the task's own beginning.",
        ),
        Component(
            "rollback",
            "ale_starts.options:RollbackOptions",
            _rollback,
            summary="Starts before an expert's last turn and moves back as success recovers.",
        ),
        Component(
            "parallel",
            "ale_starts.options:ParallelOptions",
            _parallel,
            summary="Starts at several of an expert's turns at once, drawn for each step.",
        ),
    ]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Register ``ale forks``."""
    from ale_starts.commands import forks

    return [forks]
