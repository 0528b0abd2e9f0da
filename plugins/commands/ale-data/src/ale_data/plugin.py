"""The commands ``collect``, ``score`` and ``dataset``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add ``ale data collect``, ``ale data score`` and ``ale data``."""
    from ale_data.commands import data, train

    return {"Data and training": [data, train]}
