"""The options of the task source ``tbp``."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc, ge, optional


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
        validator=optional(ge(1)),
        metadata=doc("Maximum number of tasks, applied last."),
    )
