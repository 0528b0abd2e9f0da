"""The commands ``init`` and ``status``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale init`` and ``ale status``."""
    from ale_machine.commands import init, status

    return [init, status]
