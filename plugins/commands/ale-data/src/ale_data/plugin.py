"""The commands ``collect``, ``score`` and ``dataset``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale collect``, ``ale score`` and ``ale dataset``."""
    from ale_data.commands import collect, dataset, score

    return [collect, score, dataset]
