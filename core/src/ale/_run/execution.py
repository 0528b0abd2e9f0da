"""Hand planned episodes to the executor as jobs; refuse what can't leave the process."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from attrs import frozen

from ale._config import RunConfig
from ale._run.episode import EpisodeRunner
from ale._run.manifest import versions
from ale._run.parts import Parts
from ale._run.plan import EpisodePlan
from ale._run.session import Session
from ale._store.codec import plain
from ale.errors import PluginError, Problem
from ale.protocols import Policy, RunningRun, ServedPolicy, Workers
from ale.types import Episode, EpisodeStage, Job, RunSpec, Stage

WORKER_SECTIONS = ("sandbox", "llm", "agent", "middleware", "run", "plugins")
"""Sections of a config that the process that runs a job needs."""
_NEEDS_LOCAL = "executor: {type: local}"


@frozen
class Jobs:
    """The jobs that the run has asked for, in the hands of its executor."""

    workers: Workers
    _plans: dict[str, EpisodePlan]
    """Plans of the jobs that are under way, by id."""

    async def run(self, plan: EpisodePlan) -> Episode | None:
        """The episode of a plan; None if it was withdrawn.

        Raises:
            PluginError: the executor gave back something else.
        """
        job = plan.job
        self._plans[job.id] = plan
        try:
            episode = await self.workers.run(job)
        finally:
            del self._plans[job.id]
        if episode is not None and getattr(episode, "id", None) != job.id:
            raise PluginError(f"the executor returned {episode!r} for the job {job.id}")
        return episode


@asynccontextmanager
async def executing(session: Session) -> AsyncIterator[Jobs]:
    """The run's executor, open. Raises `AleError` if it can't be opened."""
    plans: dict[str, EpisodePlan] = {}
    runner = EpisodeRunner(
        parts=session.parts,
        options=session.config.run,
        context=session.context,
        supervisor=session.supervisor,
    )

    async def run_here(job: Job) -> Episode:
        return await runner.run(plans[job.id], on_stage)

    def on_stage(job: Job, stage: Stage) -> None:
        event = EpisodeStage(
            episode_id=job.id, task_id=job.task.id, stage=stage, at=session.context.clock()
        )
        session.observers.notify("ale_episode_stage", event)

    running = RunningRun(
        spec=await _spec(session),
        concurrency=session.config.run.concurrency,
        run_here=run_here,
        on_stage=on_stage,
        report=session.say,
    )
    async with session.parts.executor.open(running) as workers:
        yield Jobs(workers, plans)


async def _spec(session: Session) -> RunSpec:
    """The record from which a worker in another process builds the run's parts."""
    config, llm = session.config, session.parts.llm
    resolved = {name: config.resolved[name] for name in WORKER_SECTIONS if name in config.resolved}
    if isinstance(llm, ServedPolicy):
        resolved["llm"] = {**resolved["llm"], **await llm.client_options()}
    return RunSpec(
        run_id=session.context.run_id,
        created=session.context.created,
        config=plain(resolved),
        versions=versions(session.registry),
        plugin_files=config.plugins,
    )


def remote_problems(config: RunConfig, parts: Parts) -> Iterator[Problem]:
    """Where episodes leave this process, what they need that can't."""
    if not parts.executor.remote:
        return
    elsewhere = f"executor '{config.executor.name}' runs episodes elsewhere"
    if parts.starts is not None:
        message = f"{elsewhere}, but start schemes work in this process"
        yield Problem(message=message, path="starts", expected=_NEEDS_LOCAL)
    served = isinstance(parts.llm, ServedPolicy) or not isinstance(parts.llm, Policy)
    if parts.trainer is not None and not served:
        message = (
            f"{elsewhere}, but the model's weights, which a trainer updates, are in this process"
        )
        expected = f"a model that is served, or {_NEEDS_LOCAL}"
        yield Problem(message=message, path="llm", expected=expected)
