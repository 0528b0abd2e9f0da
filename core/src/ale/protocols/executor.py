"""Executors: where the episodes of a run are sampled and graded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from ale.types import Episode, Job, RunSpec, Stage


@frozen(kw_only=True)
class RunningRun:
    """A run that is about to ask for episodes: what its executor is opened with."""

    spec: RunSpec
    """For workers in other processes: `ale.workers.Worker` builds the run's parts from it."""
    concurrency: int
    """Most jobs that the run asks for at once (``run.concurrency``)."""
    run_here: Callable[[Job], Coroutine[Any, Any, Episode]]
    """Runs a work in this process, which the run has asked for and not got back. It raises nothing
    but `CancelledError`, and reports the stages itself."""
    on_stage: Callable[[Job, Stage], None]
    """To be called, where it is known, whenever a job enters a stage. For observers only."""
    report: Callable[[str], None]
    """Shows a message to the user, and stores it in the run: a worker was lost."""


class Workers(Protocol):
    """An open executor, in the event loop of the run."""

    async def run(self, job: Job) -> Episode | None:
        """The work's episode, graded or broken; None where `drain` has withdrawn the work.

        Called for at most `RunningRun.concurrency` jobs at once, each of which has another id; a
        job that is asked for again, as after a run was killed and resumed, must be given its
        episode again. A job may be run more than once (a worker is lost, or thought to be): the
        caller gets one episode. Cancelled, it withdraws the job, and what is still sampled of it
        is discarded. A job that no worker can run, or that a number of workers did not survive,
        comes back as a broken episode (`ale.workers.broken`).

        Raises:
            AleError: no job can be run any more, and the run has to end; it can be resumed.
        """
        ...

    async def stored(self, job: Job) -> None:
        """The episode of this job is on disk: nobody has to keep it, or to run it again.

        Called once after `run`. Not called where the run has dropped the episode.
        """
        ...

    def drain(self) -> None:
        """The run ends (Ctrl-C): no further job follows.

        Jobs that nobody has begun are withdrawn where that is known; the others are finished.
        """
        ...


@runtime_checkable
class Executor(Protocol):
    """Runs the jobs of a run, in this process or on others."""

    @property
    def remote(self) -> bool:
        """Whether jobs leave the run's process.

        What can't leave it is then refused before the run: see `ale.workers`.
        """
        ...

    def open(self, run: RunningRun) -> AbstractAsyncContextManager[Workers]:
        """Workers for one session of a run, a resumed one too.

        On exit nothing of this session runs any more for which the run could still be asked: jobs
        are withdrawn and episodes that were not `stored` are discarded.

        Raises (on entry):
            AleError: there is nothing to run jobs on; the message says why and what to do.
        """
        ...


@runtime_checkable
class CheckableExecutor(Protocol):
    """What an executor may also have: a check before the run starts."""

    async def check(self) -> None:
        """Find out whether jobs could be run; starts nothing.

        Raises:
            AleError: they could not; the message says why and what to do.
        """
        ...
