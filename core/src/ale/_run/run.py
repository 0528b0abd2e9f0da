"""A run from its first line to its last: what surrounds the loop, however it ends."""

import asyncio
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attrs import field, frozen

from ale._config import RunConfig
from ale._registry import Registry
from ale._run.hooks import Observers
from ale._run.interrupt import Interrupt
from ale._run.loop import Loop, planned_episodes
from ale._run.parts import Parts, Tasks
from ale._run.waiting import Waiting
from ale._store import RunDirectory
from ale._store.index import SUCCESS
from ale.errors import StoreError
from ale.plugin import BuildContext
from ale.types import RunFinished, RunStarted


@frozen(kw_only=True)
class Run:
    """A run, ready to go: everything is built and checked, nothing is open."""

    config: RunConfig
    registry: Registry = field(repr=False)
    parts: Parts
    tasks: Tasks = field(repr=False)
    store: RunDirectory
    context: BuildContext
    interrupt: Interrupt
    report: Callable[[str], None]
    """Told, in words for the user, what happened beside the episodes."""
    waiting: Waiting = field(factory=Waiting)

    async def go(self) -> RunFinished:
        """Do what is missing; what came of it.

        Raises:
            StoreError: the run directory can't be written. What was written stays.
        """
        with self.interrupt.listening():
            return await self._go()

    async def _go(self) -> RunFinished:
        observers = Observers(self.parts.observers, self.registry, self._tell)
        started = self.context.clock()
        self._note("run_resumed" if len(self.store.index) else "run_started")
        observers.tell("ale_run_started", self._started())
        outcome = "failed"
        before = self.store.reader.manifest.get("outcome") or {}
        try:
            await self._prune()
            outcome = await self._loop(observers).go()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.interrupt.signal is None or task is None:
                raise
            task.uncancel()
            outcome = "cancelled"
        finally:
            spent = self.context.clock() - started
            finished = self._finished(outcome, spent)
            with suppress(StoreError):  # a full disk has been said; what follows must not hide it
                self._note("run_finished", outcome=outcome)
                self.store.set_outcome(_outcome(finished, spent + before.get("seconds", 0.0)))
            observers.tell("ale_run_finished", finished)
        return finished

    def _loop(self, observers: Observers) -> Loop:
        return Loop(
            config=self.config,
            parts=self.parts,
            tasks=self.tasks,
            store=self.store,
            context=self.context,
            interrupt=self.interrupt,
            waiting=self.waiting,
            observers=observers,
            note=self._note,
        )

    async def _prune(self) -> None:
        """Remove what killed runs have left; of those alive nothing is touched."""
        try:
            pruned = await self.parts.backend.prune()
        except Exception:
            name = self.parts.backend.name
            self._tell(f"sandbox '{name}' could not prune:\n{traceback.format_exc()}")
            return
        for info in pruned:
            self._note("pruned", sandbox=info.id, tags=info.tags)

    def _note(self, name: str, **facts: object) -> None:
        self.store.add_event(name, self.context.clock(), **facts)

    def _tell(self, message: str) -> None:
        self._note("reported", message=message)
        self.report(message)

    def _started(self) -> RunStarted:
        index, planned = self.store.index, planned_episodes(self.config, self.tasks)
        rewards = list(index.rewards())
        return RunStarted(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            n_episodes=None if planned is None else sum(planned.values()),
            n_done=len(index),
            n_graded=len(rewards),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            n_evaluated=index.count("evaluation"),
            n_expert_guided=len(list(index.rewards(elsewhere=True))),
            concurrency=self.config.run.concurrency,
            config=self.config.resolved,
            at=self.context.clock(),
        )

    def _finished(self, outcome: str, seconds: float) -> RunFinished:
        rewards = list(self.store.index.rewards())
        n_expert_guided = len(list(self.store.index.rewards(elsewhere=True)))
        return RunFinished(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            outcome=outcome,
            n_graded=len(rewards),
            n_expert_guided=n_expert_guided,
            n_broken=self.store.index.broken(),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            seconds=seconds,
            at=self.context.clock(),
        )


def _outcome(finished: RunFinished, seconds: float) -> dict[str, Any]:
    """What the manifest keeps; `seconds` are those of all sessions of the run."""
    kept = ("outcome", "n_graded", "n_broken", "n_succeeded", "mean_reward")
    return {**{name: getattr(finished, name) for name in kept}, "seconds": seconds}
