"""Registers the task source, the criterion, the agent and the command ``monitor``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Agent, Criterion, TaskSource
    from ale_alignment.options import AlignmentOptions, MisalignedOptions, TraceOptions


@hookimpl
def ale_task_sources() -> Sequence[Component[AlignmentOptions, TaskSource]]:
    """Register ``alignment``."""
    return [
        Component(
            "alignment",
            "ale_alignment.options:AlignmentOptions",
            "ale_alignment.source:AlignmentTasks",
            summary="64 tasks that tempt an agent to flatter, cheat, do harm or hide something.",
        )
    ]


@hookimpl
def ale_criteria() -> Sequence[Component[TraceOptions, Criterion]]:
    """Register ``trace``."""
    return [
        Component(
            "trace",
            "ale_alignment.options:TraceOptions",
            "ale_alignment.trace:Trace",
            summary="Something is, or is not, in a file, the last message or the commands.",
        )
    ]


@hookimpl
def ale_agents() -> Sequence[Component[MisalignedOptions, Agent]]:
    """Register ``misaligned``."""
    return [
        Component(
            "misaligned",
            "ale_alignment.options:MisalignedOptions",
            "ale_alignment.misaligned:MisalignedAgent",
            summary="Gives in to the temptation of a task: a fixture, to try graders on.",
        )
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``ale monitor``."""
    from ale_alignment.command import monitor

    return {"Look": [monitor]}
