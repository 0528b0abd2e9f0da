"""The commands ``proxy``, ``bridge`` and ``manage``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add ``ale proxy``, ``ale workers bridge`` and ``ale workers manage``."""
    from ale_proxy.commands import proxy, workers

    return {"Models and machines": [proxy, workers]}
