"""Registers the task source ``shell``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import TaskSource
    from ale_tasks_shell.options import ShellTasksOptions


@hookimpl
def ale_task_sources() -> Sequence[Component[ShellTasksOptions, TaskSource]]:
    """The one component of this package."""
    return [
        Component(
            "shell",
            "ale_tasks_shell.options:ShellTasksOptions",
            "ale_tasks_shell.source:ShellTasks",
            summary="Shell tasks made from a seed.",
        )
    ]
