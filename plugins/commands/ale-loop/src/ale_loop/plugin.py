"""The command ``loop``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add ``ale loop``."""
    from ale_loop.commands import loop

    return {"Data and training": [loop]}
