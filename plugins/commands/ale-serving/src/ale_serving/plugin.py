"""The commands ``serve`` and ``server``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale serve`` and ``ale server``."""
    from ale_serving.serve.commands import serve
    from ale_serving.server.commands import server

    return [serve, server]
