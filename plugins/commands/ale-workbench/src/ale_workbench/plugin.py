"""The commands ``init``, ``status``, ``new``, ``schema`` and ``sandbox``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add the commands that set up a machine and extend `ale`."""
    from ale_workbench.machine.commands import init, status
    from ale_workbench.new.command import command as new
    from ale_workbench.sandboxes.command import sandbox
    from ale_workbench.schema.command import schema

    return {"Extend": [init, new, schema], "Models and machines": [sandbox, status]}
