"""The command ``ablate``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add ``ale ablate``."""
    from ale_ablate.commands import ablate

    return {"Run": [ablate]}
