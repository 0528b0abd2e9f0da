"""The loop that joins the stages: episodes, then credits, then, where there is one, the trainer."""

import asyncio
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale._config import RunConfig
from ale._registry import Registry
from ale._run.crediting import Crediting
from ale._run.episode import EpisodeRunner
from ale._run.hooks import Observers
from ale._run.interrupt import Interrupt
from ale._run.parts import Parts, TaskToRun
from ale._run.plan import Work, works
from ale._run.waiting import Waiting
from ale._store import RunDirectory
from ale._store.index import SUCCESS
from ale.errors import AleError, StoreError
from ale.plugin import BuildContext
from ale.types import (
    Batch,
    CreditedGroup,
    EpisodeFinished,
    EpisodeStage,
    RunFinished,
    RunStarted,
    Stage,
    StepFinished,
)


@frozen(kw_only=True)
class Run:
    """A run, ready to go: everything is built and checked, nothing is open."""

    config: RunConfig
    registry: Registry = field(repr=False)
    parts: Parts
    tasks: Sequence[TaskToRun] = field(repr=False)
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
            outcome = await self._steps(observers)
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

    async def _steps(self, observers: Observers) -> str:
        self._restore_trainer()
        for step in range(self.config.run.steps):
            missing = (
                work
                for work in works(self.tasks, self.config.run, step)
                if work.key not in self.store.index
            )
            await self._episodes(missing, observers)
            if self.interrupt.draining:
                return "drained"
            absent = [
                work.id
                for work in works(self.tasks, self.config.run, step)
                if work.key not in self.store.index
            ]
            if absent:
                raise AleError(
                    f"{len(absent)} episodes were never finished, {absent[0]} among them"
                )
            await self._learn(step, observers)
        return "completed"

    async def _episodes(self, missing: Iterator[Work], observers: Observers) -> None:
        """Run them, `concurrency` at once; each is on disk before another takes its place."""
        runner = EpisodeRunner(
            parts=self.parts,
            options=self.config.run,
            context=self.context,
            entered=lambda work, stage: self._entered(work, stage, observers),
            waiting=self.waiting,
        )

        async def worker() -> None:
            while not self.interrupt.draining:
                work = next(missing, None)
                if work is None:
                    return
                episode = await runner.run(work)
                self.store.add_episode(episode)
                event = EpisodeFinished(episode=episode, at=self.context.clock())
                observers.tell("ale_episode_finished", event)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.config.run.concurrency):
                    group.create_task(worker())
        except ExceptionGroup as group_error:
            # One disk is full for all workers: the first says it.
            raise group_error.exceptions[0] from None

    def _entered(self, work: Work, stage: Stage, observers: Observers) -> None:
        observers.tell(
            "ale_episode_stage",
            EpisodeStage(
                episode_id=work.id,
                task_id=work.ready.task.id,
                stage=stage,
                at=self.context.clock(),
            ),
        )

    async def _learn(self, step: int, observers: Observers) -> None:
        """Credit a complete step and, where there is a trainer that has not had it yet, train."""
        crediting = crediting_of(self.config, self.parts)
        checkpoint = self.store.path / "checkpoints" / f"{step:05d}"
        trainer = self.parts.trainer
        trained = trainer is None or checkpoint.exists()
        if trained and self.store.has_credits(step):
            return
        kept: list[CreditedGroup] = []
        with self.store.writing_credits(step) as keep:
            for credited in crediting.groups(self.store.reader, self.store.index, step):
                if not trained:
                    kept.append(credited)
                for row in crediting.rows(credited):
                    keep(row)
                await asyncio.sleep(0)  # so that a Ctrl-C is heard
        if trainer is None or trained:
            return
        report = await trainer.step(Batch(step=step, groups=tuple(kept)))
        _save(trainer.save, checkpoint)
        self._note("step_finished", step=step, metrics=report.metrics)
        observers.tell("ale_step_finished", StepFinished(report=report, at=self.context.clock()))

    def _restore_trainer(self) -> None:
        """Go on from the newest checkpoint, where a run is resumed."""
        checkpoints = sorted((self.store.path / "checkpoints").glob("[0-9]*"))
        if self.parts.trainer is not None and checkpoints:
            self.parts.trainer.load(checkpoints[-1])

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
        options, index = self.config.run, self.store.index
        per_step = len(self.tasks) if options.tasks_per_step is None else options.tasks_per_step
        rewards = list(index.rewards())
        return RunStarted(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            n_episodes=options.steps * per_step * options.rollouts,
            n_done=len(index),
            n_graded=len(rewards),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            concurrency=options.concurrency,
            config=self.config.resolved,
            at=self.context.clock(),
        )

    def _finished(self, outcome: str, seconds: float) -> RunFinished:
        rewards = list(self.store.index.rewards())
        return RunFinished(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            outcome=outcome,
            n_graded=len(rewards),
            n_broken=len(self.store.index) - len(rewards),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            seconds=seconds,
            at=self.context.clock(),
        )


def _outcome(finished: RunFinished, seconds: float) -> dict[str, Any]:
    """What the manifest keeps; `seconds` are those of all sessions of the run."""
    return {
        "outcome": finished.outcome,
        "n_graded": finished.n_graded,
        "n_broken": finished.n_broken,
        "n_succeeded": finished.n_succeeded,
        "mean_reward": finished.mean_reward,
        "seconds": seconds,
    }


def crediting_of(config: RunConfig, parts: Parts) -> Crediting:
    """The config's chunker and scheme."""
    return Crediting(
        chunker=parts.chunker,
        chunker_name=config.chunker.name,
        scheme=parts.credit,
        scheme_name=config.credit.name,
    )


def _save(save: Callable[[Path], None], target: Path) -> None:
    """Write a checkpoint so that it is there whole or not at all."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save(partial)
    partial.replace(target)
