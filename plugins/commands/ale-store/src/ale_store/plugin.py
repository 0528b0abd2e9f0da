"""The commands ``runs`` and ``traj``, and the observer ``store``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_observers() -> Sequence[Component[Any, object]]:
    """Register the observer ``store``."""
    summary = "Keeps a database of runs up to date."
    build = "ale_store.observer:Updating"
    return [Component("store", "ale_store.options:StoreOptions", build, summary=summary)]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale runs`` and ``ale traj``."""
    from ale_store.runs_command import runs
    from ale_store.traj_command import traj

    return [runs, traj]
