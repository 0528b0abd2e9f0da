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
    """A run that is about to ask for episodes; its executor is opened with this."""

    spec: RunSpec
    """For workers in other processes: `ale.workers.Worker` builds the run's parts from this."""
    concurrency: int
    """Most jobs that the run asks for at once (``run.concurrency``)."""
    run_here: Callable[[Job], Coroutine[Any, Any, Episode]]
    """Runs in this process a job that the run has asked for and not yet got back. It raises nothing
    but `CancelledError`, and itself reports the stages."""
    on_stage: Callable[[Job, Stage], None]
    """To be called whenever a job enters a stage, if that is known. For observers only."""
    report: Callable[[str], None]
    """Shows a message to the user and stores it in the run, for example that a worker was lost."""


class Workers(Protocol):
    """An open executor, in the event loop of the run."""

    async def run(self, job: Job) -> Episode | None:
        """The job's episode, graded or broken; None if `drain` has withdrawn the job.

        Called for at most `RunningRun.concurrency` jobs at once, each with its own id. A job that
        is asked for again, as after a run was killed and resumed, must be given its episode again.
        A job may be run more than once (if a worker is lost, or thought to be lost), but the caller
        gets one episode. If cancelled, this withdraws the job, and what is still sampled for it is
        discarded. A job that no worker can run, or that several workers did not survive, comes back
        as a broken episode (`ale.workers.broken`).

        Raises:
            AleError: no job can be run any more, so the run has to end; it can be resumed.
        """
        ...

    async def stored(self, job: Job) -> None:
        """The episode of this job is on disk: it need not be kept or run again.

        Called once after `run`, but not if the run has dropped the episode.
        """
        ...

    def drain(self) -> None:
        """The run is ending (Ctrl-C): no further job follows.

        Jobs that are known not to have begun are withdrawn; the others are finished.
        """
        ...


@runtime_checkable
class Executor(Protocol):
    """Runs the jobs of a run, in this process or on others."""

    @property
    def remote(self) -> bool:
        """Whether jobs leave the run's process.

        If so, parts that can't leave it are refused before the run: see `ale.workers`.
        """
        ...

    def open(self, run: RunningRun) -> AbstractAsyncContextManager[Workers]:
        """Workers for one session of a run, which may be a resumed run.

        On exit, nothing of this session keeps running that could still make requests to the run:
        jobs are withdrawn and episodes that were not `stored` are discarded.

        Raises (on entry):
            AleError: there is nothing to run jobs on; the message says why and what to do.
        """
        ...


@runtime_checkable
class CheckableExecutor(Protocol):
    """An executor with a check before the run starts."""

    async def check(self) -> None:
        """Find out whether jobs could be run, without starting anything.

        Raises:
            AleError: they could not; the message says why and what to do.
        """
        ...
