"""The commands ``serve`` and ``server``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add ``ale serve`` and ``ale engines``."""
    from ale_serving.serve.commands import serve
    from ale_serving.server.commands import engines

    return {"Models and machines": [serve, engines]}
