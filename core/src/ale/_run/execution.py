"""Hand planned episodes to the executor as jobs; refuse what can't leave the process."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field, frozen

from ale._config import RunConfig
from ale._registry import Registry
from ale._run.episode import EpisodeRunner
from ale._run.manifest import versions
from ale._run.parts import Parts
from ale._run.plan import EpisodePlan
from ale.errors import InputError, PluginError, Problem
from ale.protocols import Policy, RunningRun, ServedPolicy, Workers
from ale.types import Episode, Job, RunSpec, Stage

WORKER_SECTIONS = ("sandbox", "llm", "agent", "middleware", "run", "plugins")
"""Sections of a config that the process that runs a job needs."""
_NEEDS_LOCAL = "executor: {type: local}"


@define
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
        job = job_of(plan)
        self._plans[job.id] = plan
        try:
            episode = await self.workers.run(job)
        finally:
            del self._plans[job.id]
        if episode is not None and getattr(episode, "id", None) != job.id:
            raise PluginError(f"the executor returned {episode!r} for the job {job.id}")
        return episode

    async def stored(self, plan: EpisodePlan) -> None:
        """Tell the executor that this plan's episode is on disk."""
        await self.workers.stored(job_of(plan))

    def drain(self) -> None:
        """Tell the executor that no further plan follows."""
        self.workers.drain()


def job_of(plan: EpisodePlan) -> Job:
    """A plan as plain data."""
    return Job(
        id=plan.id,
        task=plan.prepared.task,
        split=plan.split,
        step=plan.step,
        start=plan.start.name,
        rollout=plan.rollout,
        seed=plan.seed,
        temperature=plan.temperature,
    )


@frozen(kw_only=True)
class Executing:
    """The arguments with which a run's executor is opened."""

    config: RunConfig
    registry: Registry = field(repr=False)
    parts: Parts
    run_id: str
    runner: EpisodeRunner
    on_stage: Callable[[str, str, Stage], None]
    """Called with the ids of an episode and its task."""
    report: Callable[[str], None]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Jobs]:
        """The run's executor, open. Raises `AleError` if it can't be opened."""
        plans: dict[str, EpisodePlan] = {}

        async def run_here(job: Job) -> Episode:
            return await self.runner.run(plans[job.id])

        def on_stage(job: Job, stage: Stage) -> None:
            self.on_stage(job.id, job.task.id, stage)

        running = RunningRun(
            spec=await run_spec(self.config, self.registry, self.parts, self.run_id),
            concurrency=self.config.run.concurrency,
            run_here=run_here,
            on_stage=on_stage,
            report=self.report,
        )
        async with self.parts.executor.open(running) as workers:
            yield Jobs(workers, plans)


async def run_spec(config: RunConfig, registry: Registry, parts: Parts, run_id: str) -> RunSpec:
    """What a worker in another process builds the run's parts from."""
    resolved = {name: config.resolved[name] for name in WORKER_SECTIONS if name in config.resolved}
    if isinstance(parts.llm, ServedPolicy):
        resolved["llm"] = {**resolved["llm"], **await parts.llm.client_options()}
    return RunSpec(
        run_id=run_id,
        config=_plain(resolved),
        versions=versions(registry),
        plugin_files=config.plugins,
    )


def _plain(value: Any) -> Any:
    """The value with JSON's types: frozen mappings and tuples become plain dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def check_remote(config: RunConfig, parts: Parts) -> None:
    """Raise `InputError` if episodes leave this process but something that they need can't."""
    if not parts.executor.remote:
        return
    name, problems = config.executor.name, []
    if parts.starts is not None:
        message = (
            f"executor '{name}' runs episodes elsewhere, but start schemes work in this process"
        )
        problems.append(Problem(message=message, path="starts", expected=_NEEDS_LOCAL))
    served = isinstance(parts.llm, ServedPolicy) or not isinstance(parts.llm, Policy)
    if parts.trainer is not None and not served:
        message = (
            f"executor '{name}' runs episodes elsewhere, but the model's weights, which a trainer "
            "updates, are in this process"
        )
        expected = f"a model that is served, or {_NEEDS_LOCAL}"
        problems.append(Problem(message=message, path="llm", expected=expected))
    if problems:
        raise InputError(problems)
