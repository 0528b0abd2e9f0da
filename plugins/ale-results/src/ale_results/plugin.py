"""The command ``results``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale results``."""
    from ale_results.command import results

    return [results]
