"""Registers the task source ``harbor`` and the criterion ``task_tests``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion, TaskSource
    from ale_tasks_harbor.options import HarborOptions, TaskTestsOptions


def _source(options: HarborOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_harbor.source import HarborSource

    return HarborSource(options, environ=context.environ, new_id=context.new_id)


def _task_tests(options: TaskTestsOptions, context: BuildContext) -> Criterion:
    from ale_tasks_harbor.criterion import TaskTests

    return TaskTests(options, environ=context.environ, run_directory=context.run_directory)


@hookimpl
def ale_task_sources() -> Sequence[Component[HarborOptions, TaskSource]]:
    """One source: ``harbor``."""
    return [
        Component(
            "harbor",
            "ale_tasks_harbor.options:HarborOptions",
            _source,
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
            _task_tests,
            summary="A task folder's own tests, put in place after the agent, give the reward.",
        )
    ]
