"""The components of the core itself, registered through the same hooks as any other."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ale.protocols import Executor, RunningRun, Workers
    from ale.types import Job


class Local:
    """Runs every job in the run's own process."""

    remote = False

    @asynccontextmanager
    async def open(self, run: RunningRun) -> AsyncIterator[Workers]:
        """Workers that are this process."""
        yield LocalWorkers(run)


class LocalWorkers:
    """This process."""

    def __init__(self, run: RunningRun) -> None:
        self.run = run.run_here
        """As in the protocol; a job is never withdrawn, since each is begun at once."""

    async def stored(self, job: Job) -> None:
        """Nothing was kept."""

    def drain(self) -> None:
        """Whatever was asked for has begun, and is finished."""


@hookimpl
def ale_executors() -> Sequence[Component[Any, Executor]]:
    """The executor that needs nothing else."""
    summary = "Runs the episodes in the process of the run itself."
    return [Component("local", None, "ale._builtin:Local", summary=summary)]
