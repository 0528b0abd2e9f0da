"""Registers the task source ``tbp``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import TaskSource
    from ale_tasks_tbp.options import TbpOptions


def _build(options: TbpOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_tbp.source import TbpSource

    return TbpSource(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[TbpOptions, TaskSource]]:
    """Register ``tbp``."""
    return [
        Component(
            "tbp",
            "ale_tasks_tbp.options:TbpOptions",
            _build,
            summary="Tasks from YAML files and task folders.",
        )
    ]
