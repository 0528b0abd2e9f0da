"""The commands ``proxy``, ``bridge`` and ``manage``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale proxy``, ``ale bridge`` and ``ale manage``."""
    from ale_proxy.commands import bridge, manage, proxy

    return [proxy, bridge, manage]
