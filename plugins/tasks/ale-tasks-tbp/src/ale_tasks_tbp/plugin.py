"""Registers the task source ``tbp``."""

from collections.abc import Sequence

from ale.plugin import BuildContext, Component, hookimpl
from ale.protocols import TaskSource
from ale_tasks_tbp.options import TbpOptions


def _build(options: TbpOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_tbp.source import TbpSource

    return TbpSource(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[TbpOptions, TaskSource]]:
    """Register ``tbp``."""
    return [Component("tbp", TbpOptions, _build, summary="Tasks from YAML files and task folders.")]
