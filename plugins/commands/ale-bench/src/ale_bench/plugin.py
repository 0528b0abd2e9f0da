"""Registers the commands ``eval`` and ``art``, and the observer ``art``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_observers() -> Sequence[Component[None, object]]:
    """Register the observer ``art``."""
    return [
        Component(
            "art",
            None,
            "ale_bench.art.observer:ArtObserver",
            summary="Prints a header, a line per step and totals on standard error.",
        )
    ]


@hookimpl
def ale_commands() -> "Mapping[str, Sequence[click.Command]]":
    """Add ``ale eval`` and ``ale art``."""
    from ale_bench.art.commands import art
    from ale_bench.commands import eval_

    return {"Run": [eval_, art]}
