"""The commands ``results`` and ``harbor-job``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def ale_commands() -> "Sequence[click.Command]":
    """Add ``ale results`` and ``ale harbor-job``."""
    from ale_results.command import harbor_job, results

    return [results, harbor_job]
