"""Execute a run: prune old sandboxes, run the loop, record how it ended."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from attrs import field, frozen

from ale._config import RunConfig
from ale._registry import Registry
from ale._run.dispatch import Dispatcher
from ale._run.early_stop import EarlyStop, StoppedEarlyError
from ale._run.episode import EpisodeRunner
from ale._run.evaluation import Evaluator
from ale._run.execution import Executing, Jobs
from ale._run.hooks import Observers
from ale._run.interrupt import Interrupt
from ale._run.loop import Loop, planned_episodes
from ale._run.parts import Parts, Tasks
from ale._run.products import not_pruned
from ale._run.stream import StreamLoop
from ale._run.timeouts import Supervisor
from ale._run.times import Times
from ale._run.training import Training
from ale._store import RunDirectory
from ale._store.index import SUCCESS
from ale.attempts import mean
from ale.errors import StoreError
from ale.plugin import BuildContext
from ale.types import EpisodeStage, RunFinished, RunStarted, Stage


@frozen(kw_only=True)
class Run:
    """A run whose parts are built and checked; no sandbox is open yet."""

    config: RunConfig
    registry: Registry = field(repr=False)
    parts: Parts
    tasks: Tasks = field(repr=False)
    store: RunDirectory
    context: BuildContext
    interrupt: Interrupt
    report: Callable[[str], None]
    """Shows a message to the user."""
    conduct: Callable[[Loop], Awaitable[str]] | None = None
    """Does the run's work with episodes that come from elsewhere, and returns the outcome.

    None: the loop does it, with its own."""
    startup_s: float = 0.0
    """Seconds that the program needed before the run; they count towards its time."""
    supervisor: Supervisor = field(factory=Supervisor)
    early_stop: EarlyStop = field(init=False)

    @early_stop.default
    def _make_early_stop(self) -> EarlyStop:
        return EarlyStop(self.config.run.stop_after_broken)

    async def execute(self) -> RunFinished:
        """Do what remains to be done, unless the first episodes all break for the same reason.

        Raises:
            StoreError: the run directory can't be written. Its content stays readable.
        """
        with self.interrupt.listening():
            if self.config.run.on_sigterm == "drain":
                self.interrupt.drain_on_terminate()
            return await self._execute()

    async def _execute(self) -> RunFinished:
        names = (each.name for each in self.config.observers)
        products = [*zip(names, self.parts.observers, strict=True)]
        observers = Observers(products, self.registry, self._report)
        started = self.context.clock()
        self._record_event("run_resumed" if len(self.store.index) else "run_started")
        observers.notify("ale_run_started", self._started())
        outcome = "failed"
        self.store.begin()
        try:
            await self._prune()
            async with self._executing(observers).open() as jobs:
                self.interrupt.on_drain = jobs.drain
                outcome = await (self.conduct or Loop.run)(self._loop(observers, jobs))
        except StoppedEarlyError:
            outcome = "stopped"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.interrupt.signal is None or task is None:
                raise
            task.uncancel()
            outcome = "cancelled"
        finally:
            spent = self.startup_s + self.context.clock() - started
            finished = self._finished(outcome, spent)
            with suppress(StoreError):  # a full disk was reported before: do not hide that
                self._record_event("run_finished", outcome=outcome, **self._stop_facts())
                described = _outcome(finished, spent + self.store.earlier_s)
                self.store.set_outcome(described, discard=outcome == "stopped")
            observers.notify("ale_run_finished", finished)
        return finished

    def _executing(self, observers: Observers) -> Executing:
        def on_stage(episode_id: str, task_id: str, stage: Stage) -> None:
            event = EpisodeStage(
                episode_id=episode_id, task_id=task_id, stage=stage, at=self.context.clock()
            )
            observers.notify("ale_episode_stage", event)

        runner = EpisodeRunner(
            parts=self.parts,
            options=self.config.run,
            context=self.context,
            on_stage=lambda plan, stage: on_stage(plan.id, plan.prepared.task.id, stage),
            supervisor=self.supervisor,
        )
        return Executing(
            config=self.config,
            registry=self.registry,
            parts=self.parts,
            run_id=self.context.run_id,
            runner=runner,
            on_stage=on_stage,
            report=self._report,
        )

    def _loop(self, observers: Observers, jobs: Jobs) -> Loop:
        times = Times(self.context.monotonic)
        dispatcher = Dispatcher(
            jobs=jobs,
            options=self.config.run,
            store=self.store,
            context=self.context,
            interrupt=self.interrupt,
            observers=observers,
            times=times,
            early_stop=self.early_stop,
        )
        training = Training(
            config=self.config,
            parts=self.parts,
            store=self.store,
            context=self.context,
            observers=observers,
            times=times,
            record_event=self._record_event,
        )
        evaluator = Evaluator(
            config=self.config,
            parts=self.parts,
            tasks=self.tasks,
            store=self.store,
            context=self.context,
            observers=observers,
            dispatcher=dispatcher,
            times=times,
            record_event=self._record_event,
            before=training.saved,
        )
        return (StreamLoop if self.config.run.schedule == "stream" else Loop)(
            config=self.config,
            parts=self.parts,
            tasks=self.tasks,
            store=self.store,
            dispatcher=dispatcher,
            training=training,
            evaluator=evaluator,
            times=times,
        )

    async def _prune(self) -> None:
        """Remove sandboxes whose run was killed; those of live runs are left alone."""
        if self.parts.executor.remote:
            return  # there are no sandboxes here: workers remove their own
        try:
            pruned = await self.parts.backend.prune()
        except Exception as error:
            self._report(not_pruned(self.parts.backend.name, error))
            return
        for info in pruned:
            self._record_event("pruned", sandbox=info.id, tags=info.tags)

    def _record_event(self, name: str, **facts: object) -> None:
        self.store.add_event(name, self.context.clock(), **facts)

    def _stop_facts(self) -> dict[str, str]:
        return {} if self.early_stop.cause is None else {"cause": self.early_stop.cause}

    def _report(self, message: str) -> None:
        self._record_event("reported", message=message)
        self.report(message)

    def _started(self) -> RunStarted:
        index = self.store.index
        own = self.conduct is None  # else there are as many as come
        planned = planned_episodes(self.config, self.tasks) if own else None
        rewards = list(index.rewards())
        return RunStarted(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            n_episodes=None if planned is None else sum(planned.values()),
            n_done=len(index),
            n_graded=len(rewards),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            n_evaluated=index.count("evaluation"),
            n_expert_guided=len(list(index.rewards(expert_guided=True))),
            concurrency=self.config.run.concurrency,
            config=self.config.resolved,
            at=self.context.clock(),
        )

    def _finished(self, outcome: str, seconds: float) -> RunFinished:
        rewards = list(self.store.index.rewards())
        n_expert_guided = len(list(self.store.index.rewards(expert_guided=True)))
        return RunFinished(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            outcome=outcome,
            n_graded=len(rewards),
            n_expert_guided=n_expert_guided,
            n_broken=self.store.index.broken(),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            mean_reward=mean(rewards) if rewards else None,
            seconds=seconds,
            at=self.context.clock(),
        )


def _outcome(finished: RunFinished, seconds: float) -> dict[str, Any]:
    """The manifest's outcome; `seconds` covers all sessions of the run."""
    names = ("outcome", "n_graded", "n_broken", "n_succeeded", "mean_reward")
    return {**{name: getattr(finished, name) for name in names}, "seconds": seconds}
