"""Registers the command ``art`` and the observer ``art``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click


def _build(options: None, context: BuildContext) -> object:
    from ale_art.observer import ArtObserver

    return ArtObserver()


@hookimpl
def ale_observers() -> Sequence[Component[None, object]]:
    """Register the observer ``art``."""
    return [
        Component(
            "art",
            None,
            _build,
            summary="Prints a header, a line per step and totals on standard error.",
        )
    ]


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale art``."""
    from ale_art.commands import art

    return [art]
