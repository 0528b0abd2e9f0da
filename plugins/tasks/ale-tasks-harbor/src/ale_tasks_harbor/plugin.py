"""Registers the task source ``harbor`` and the criterion ``task_tests``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Benchmark, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion, TaskSource

_WITHOUT_LIMITS = ("memory_mb", "processes", "cpu_s", "file_size_mb", "open_files")
_FOLDERS = Benchmark(
    "harbor",
    criterion="task_tests",
    needs="a FOLDER",
    agent="iflow:tool_timeout_s=null,time_limit_s=null",
    sandbox="docker:capabilities=[DOCKER_DEFAULT],new_privileges=true,"
    + ",".join(f"{name}=null" for name in _WITHOUT_LIMITS),
    run={"open_timeout_s": 1800, "grading_timeout_s": 3600},
    folders=("task.toml", "run-tests.sh"),
    groups=("difficulty",),
)
"""Privileges and limits as both harnesses give them: docker's, and a task's own."""


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:
    """One source: ``harbor``."""
    return [
        Component(
            "harbor",
            "ale_tasks_harbor.options:HarborOptions",
            "ale_tasks_harbor.source:HarborSource",
            summary="Task folders of Harbor and Terminal-Bench, unchanged.",
            benchmarks=(_FOLDERS,),
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
