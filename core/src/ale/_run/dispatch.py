"""Run planned episodes: the executor gets them as jobs; each is stored when it finishes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from ale._config import RunConfig
from ale._run import contested
from ale._run.episode import EpisodeRunner
from ale._run.manifest import versions
from ale._run.parts import Parts
from ale._run.plan import key_of
from ale._run.session import Session
from ale._store.codec import plain
from ale.errors import AleError, InputError, PluginError, Problem
from ale.protocols import Policy, RunningRun, ServedPolicy, Start, Workers
from ale.text import counted
from ale.types import Episode, EpisodeFinished, EpisodeStage, Job, RunSpec, Stage

WORKER_SECTIONS = ("sandbox", "llm", "agent", "middleware", "run", "plugins")
"""Sections of a config that the process that runs a job needs."""
_NEEDS_LOCAL = "executor: {type: local}"


@asynccontextmanager
async def executing(session: Session, start_of: Callable[[Job], Start]) -> AsyncIterator[Workers]:
    """The workers of the run's executor. Raises `AleError` if it can't be opened.

    Args:
        start_of: the start that a job names.
    """
    runner = EpisodeRunner(
        parts=session.parts,
        options=session.config.run,
        context=session.context,
        supervisor=session.supervisor,
        on_turn=session.worked,
    )
    prepared = {
        (split, each.task.id): each for split, tasks in session.tasks.items() for each in tasks
    }

    session.control.here = None if session.parts.executor.remote else runner

    async def run_here(job: Job) -> Episode:
        return await runner.run(job, prepared[job.split, job.task.id], start_of(job), on_stage)

    def on_stage(job: Job, stage: Stage) -> None:
        event = EpisodeStage(
            episode_id=job.id, task_id=job.task.id, stage=stage, at=session.context.clock()
        )
        session.observers.notify("ale_episode_stage", event)

    running = RunningRun(
        spec=await _spec(session),
        concurrency=session.config.run.most_at_once,
        run_here=run_here,
        on_stage=on_stage,
        report=session.say,
    )
    async with session.parts.executor.open(running) as workers:
        yield workers


async def _spec(session: Session) -> RunSpec:
    """The record from which a worker in another process builds the run's parts."""
    config, llm = session.config, session.parts.llm
    resolved = {name: config.resolved[name] for name in WORKER_SECTIONS if name in config.resolved}
    if isinstance(llm, ServedPolicy) and session.parts.executor.remote:
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


def refuse_lost(session: Session, version: int, jobs: Iterator[Job]) -> None:
    """Raise `InputError` if episodes are missing whose policy the trainer no longer has.

    A run directory that was copied while the run was writing, or restored from a backup, may hold
    newer checkpoints than episodes. The newest policy would then sample the missing episodes, and
    they would be stored and reported as those of the earlier one.

    Args:
        version: number of steps that the policy of these episodes had learned from. With staleness
            it may have been fewer.
    """
    store, parts = session.store, session.parts
    learned = store.checkpoints.newest() + 1
    if parts.trainer is None or not isinstance(parts.llm, Policy) or version >= learned:
        return
    missing = (job.id for job in jobs if key_of(job) not in store.index)
    first = next(missing, None)
    if first is None:
        return
    number = counted(1 + sum(1 for _ in missing), "episode")
    raise InputError.of(
        f"lacks {number} of the policy after {counted(version, 'step')}, such as {first}; that "
        f"policy is gone: the newest checkpoint is after {counted(learned, 'step')}",
        file=str(store.path / "episodes.jsonl"),
        hint="restore the file, for example from where the run was copied; or move 'checkpoints' "
        "away: the policy learns again from the episodes that are left, and samples the others",
    )


class Dispatcher:
    """Runs the episodes of one run."""

    def __init__(
        self, session: Session, workers: Workers, in_place_of: Callable[[Job], Job | None]
    ) -> None:
        self._session = session
        self._workers = workers
        self._in_place_of = in_place_of
        """As `StartPlan.in_place_of`."""
        self._admission = asyncio.Lock()
        """Steps start their episodes in turn: a later step gets only slots that are left free."""

    async def run(self, jobs: Callable[[], Iterator[Job]]) -> bool:
        """Run the episodes that are not on disk; False if the run is to end.

        If it drains without a signal (`run.budget`, `ale steer`) and lacks nothing, it is True:
        what was sampled is learned from.

        Args:
            jobs: called again for each pass over them, so that they are never all in memory.

        Raises:
            AleError: some are still missing at the end.
            StoppedEarlyError: the first episodes all broke for one reason; raised in an exception
                group.
        """
        index, interrupt = self._session.store.index, self._session.interrupt
        control = self._session.control
        async with asyncio.TaskGroup() as group, self._admission:
            for job in jobs():
                if key_of(job) not in index:
                    await control.slot(lambda: interrupt.draining)
                    if interrupt.draining:
                        control.free()
                        break
                    group.create_task(self._run_one(job))
        # Not a list: an interrupted run may have planned more episodes than memory holds.
        missing = (job.id for job in jobs() if key_of(job) not in index)
        first = next(missing, None)
        if first is not None and not interrupt.draining:
            number = 1 + sum(1 for _ in missing)
            raise AleError(f"{number} episodes were not finished, among them {first}")
        return first is None and interrupt.signal is None

    async def _run_one(self, job: Job) -> None:
        """Run and store one episode, and what is sampled in its place; then free its slot."""
        control, interrupt = self._session.control, self._session.interrupt
        following: Job | None = job
        try:
            while following is not None and await self._stored(following):
                following = self._in_place_of(following)
                if following is not None:
                    control.free()
                    await control.slot(lambda: interrupt.draining)
                    if interrupt.draining:
                        following = None
        finally:
            control.free()

    async def _stored(self, job: Job) -> bool:
        """Run and store one episode; False if the run is to end."""
        session = self._session
        session.control.begin(job.id, session.context.monotonic())
        try:
            episode = await self._episode(job)
            if episode is not None:
                session.overload.add(episode)
        finally:
            session.worked(job.id, ended=True)
        if episode is None or session.early_stop.cause is not None:
            return False  # finished while the run was stopping: sampled again with the others
        session.store.add_episode(episode)
        await self._workers.stored(job)
        session.times.add(episode)
        session.spend(episode)
        event = EpisodeFinished(episode=episode, at=session.context.clock())
        session.observers.notify("ale_episode_finished", event)
        session.early_stop.add(episode)
        return not session.interrupt.draining

    async def _episode(self, job: Job) -> Episode | None:
        """A job's episode, as the run counts it; None if it was withdrawn.

        Raises:
            PluginError: the executor gave back something else.
        """
        episode = await self._workers.run(job)
        if episode is None:
            return None
        if getattr(episode, "id", None) != job.id:
            raise PluginError(f"the executor returned {episode!r} for the job {job.id}")
        config = self._session.config
        trains = config.trainer is not None
        as_what = contested.how(config.run.contested, trains=trains, episode=episode)
        return contested.counted(episode, as_what)
