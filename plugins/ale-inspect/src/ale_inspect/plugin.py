"""The commands ``show`` and ``credit``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale show`` and ``ale credit``."""
    from ale_inspect.commands import credit, show

    return [show, credit]
