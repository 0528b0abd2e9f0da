"""Registers the task source ``harbor`` and the criterion ``task_tests``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion, TaskSource


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:
    """One source: ``harbor``."""
    return [
        Component(
            "harbor",
            "ale_tasks_harbor.options:HarborOptions",
            "ale_tasks_harbor.source:HarborSource",
            summary="Task folders of Harbor and Terminal-Bench, unchanged.",
        )
    ]


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """One criterion: ``task_tests``."""
    return [
        Component(
            "task_tests",
            "ale_tasks_harbor.options:TaskTestsOptions",
            "ale_tasks_harbor.criterion:TaskTests",
            summary="A task folder's own tests, put in place after the agent, give the reward.",
        )
    ]
