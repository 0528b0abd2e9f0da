"""Registers the task source ``shell``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import TaskSource
    from ale_tasks_shell.options import ShellTasksOptions


def _build(options: ShellTasksOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_shell.source import ShellTasks

    return ShellTasks(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[ShellTasksOptions, TaskSource]]:
    """The one component of this package."""
    return [
        Component(
            "shell",
            "ale_tasks_shell.options:ShellTasksOptions",
            _build,
            summary="Shell tasks made from a seed.",
        )
    ]
