"""Registers the task source ``tbp``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Benchmark, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import TaskSource
    from ale_tasks_tbp.options import TbpOptions


@hookimpl
def ale_task_sources() -> Sequence[Component[TbpOptions, TaskSource]]:
    """Register ``tbp``."""
    return [
        Component(
            "tbp",
            "ale_tasks_tbp.options:TbpOptions",
            "ale_tasks_tbp.source:TbpSource",
            summary="Tasks from YAML files and task folders.",
            benchmarks=(
                Benchmark("tbp", needs="a FOLDER", agent="iflow", folders=("*.yaml", "*.yml")),
            ),
        )
    ]
