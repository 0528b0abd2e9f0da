"""Registers the task source ``tbp``."""

from collections.abc import Sequence
from pathlib import Path

from attrs import field, frozen, validators

from ale.plugin import BuildContext, Component, doc, ge, hookimpl
from ale.protocols import TaskSource


@frozen(kw_only=True)
class TbpOptions:
    """Tasks from YAML files."""

    path: Path = field(
        metadata=doc("A task file, a task folder, or a folder that is searched for both.")
    )
    include: tuple[str, ...] = field(
        default=(), metadata=doc("Select tasks whose id matches one of these globs.")
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=doc("Exclude tasks whose id matches one of these globs.")
    )
    tags: tuple[str, ...] = field(
        default=(), metadata=doc("Select tasks with at least one of these tags.")
    )
    limit: int | None = field(
        default=None,
        validator=validators.optional(ge(1)),
        metadata=doc("Maximum number of tasks, applied last."),
    )


def _build(options: TbpOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_tbp.source import TbpSource

    return TbpSource(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[TbpOptions, TaskSource]]:
    """Register ``tbp``."""
    return [Component("tbp", TbpOptions, _build, summary="Tasks from YAML files and task folders.")]
