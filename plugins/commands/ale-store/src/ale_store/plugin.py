"""The commands ``runs`` and ``traj``, and the observer ``store``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale_store.options import StoreOptions


def _build(options: StoreOptions, context: BuildContext) -> object:
    from ale_store.observer import Updating

    url = None
    if options.url_env is not None:
        secret = context.secret(options.url_env)
        if secret is None:
            raise NotUsableError(f"the environment variable {options.url_env} is not set")
        url = secret.value
    return Updating(options, url)


@hookimpl
def ale_observers() -> Sequence[Component[StoreOptions, object]]:
    """Register the observer ``store``."""
    summary = "Keeps a database of runs up to date."
    return [Component("store", "ale_store.options:StoreOptions", _build, summary=summary)]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale runs`` and ``ale traj``."""
    from ale_store.runs_command import runs
    from ale_store.traj_command import traj

    return [runs, traj]
