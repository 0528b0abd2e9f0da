"""Step after step: episodes, their credit, the trainer, and its weights back to the model."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

from ale._config import RunConfig
from ale._run.crediting import Crediting
from ale._run.episode import EpisodeRunner
from ale._run.hooks import Observers
from ale._run.interrupt import Interrupt
from ale._run.parts import Parts, Tasks
from ale._run.plan import Work, evaluation_works, starts_of_step, tasks_per_step, works
from ale._run.times import Times
from ale._run.waiting import Waiting
from ale._store import RunDirectory
from ale._store.checkpoints import put_report
from ale._store.index import SUCCESS
from ale.errors import AleError
from ale.plugin import BuildContext
from ale.protocols import Policy, Start, Trainer
from ale.text import counted
from ale.types import (
    Batch,
    CreditedGroup,
    Episode,
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    Split,
    Stage,
    StepFinished,
    StepReport,
    replace,
)


@frozen(kw_only=True)
class Loop:
    """What is done, and not done yet, is read from the run directory alone."""

    config: RunConfig
    parts: Parts
    tasks: Tasks
    store: RunDirectory
    context: BuildContext
    interrupt: Interrupt
    waiting: Waiting
    observers: Observers
    note: Callable[..., None]
    """Writes a line into the record of what happened when."""
    runner: EpisodeRunner = field(init=False)
    slots: asyncio.Semaphore = field(init=False)
    """One for each episode that may run."""
    turn: asyncio.Lock = field(factory=asyncio.Lock)
    """Held by whoever hands out episodes."""
    told: set[int] = field(factory=set)
    """Steps whose evaluation is in the record of events: a kill may fall before it."""
    times: Times = field(init=False)

    @runner.default
    def _runner(self) -> EpisodeRunner:
        return EpisodeRunner(
            parts=self.parts,
            options=self.config.run,
            context=self.context,
            entered=self._entered,
            waiting=self.waiting,
        )

    @times.default
    def _times(self) -> Times:
        return Times(self.context.monotonic)

    @slots.default
    def _slots(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.config.run.concurrency)

    async def go(self) -> str:
        """Do what is missing; ``completed``, or ``drained`` after a Ctrl-C.

        The episodes of a step may begin when the policy has learned from all but the last
        `staleness` steps before it: admit while accepted + running < (eta + version + 1) * B
        (AReaL, arXiv:2505.24298). With 0, every step waits for the one before.
        """
        try:
            async with asyncio.TaskGroup() as group:
                return await self._go(group)
        except ExceptionGroup as errors:
            # One disk is full for all episodes: the first says it.
            raise first_of(errors) from None

    async def _go(self, group: asyncio.TaskGroup) -> str:
        await self._restore()
        n_steps, staleness = self.config.run.steps, self.config.run.staleness
        ahead: deque[tuple[bool, asyncio.Task[bool]]] = deque()
        planned = [self._plan(step) for step in range(min(staleness + 1, n_steps))]
        if not await self._evaluate(0, due=False):
            return "drained"
        for step, starts in enumerate(planned):
            ahead.append(self._begin(group, step, starts))
        for step in range(n_steps):
            demonstrated, running = ahead.popleft()
            with self.times.on("rollouts"):
                complete = await running
            if not complete:
                return "drained"
            await self._learn(step)
            self._tell_starts(step)
            # Planned before it is measured: what a scheme says depends on the steps alone.
            last, following = step + 1 == n_steps, step + 1 + staleness
            starts = self._plan(following) if following < n_steps else ()
            demonstrating = ahead[0][0] if ahead else any(start.demonstration for start in starts)
            if not await self._evaluate(step + 1, due=last or (demonstrated and not demonstrating)):
                return "drained"
            if following < n_steps:
                ahead.append(self._begin(group, following, starts))
        return "completed"

    def _plan(self, step: int) -> Sequence[Start]:
        return starts_of_step(self.tasks["train"], self.config.run, step, self.parts.starts)

    def _begin(
        self, group: asyncio.TaskGroup, step: int, starts: Sequence[Start]
    ) -> tuple[bool, asyncio.Task[bool]]:
        """Let a step's episodes run; whether it demonstrates, and the task that ends with them."""
        running = group.create_task(self._complete(lambda: self._works(step, starts)))
        return any(start.demonstration for start in starts), running

    def _works(self, step: int, starts: Iterable[Start]) -> Iterator[Work]:
        return works(self.tasks["train"], self.config.run, step, tuple(starts))

    async def _evaluate(self, step: int, *, due: bool) -> bool:
        """Measure the policy after `step` steps, if it is time; False where it was interrupted.

        Due in any case are the end, and the end of the demonstrations: what imitation has brought.
        """
        evaluation, options = self.config.evaluation, self.config.run
        if evaluation is None or not (due or step % evaluation.options.every == 0):
            return True

        def planned() -> Iterator[Work]:
            rollouts = evaluation.options.rollouts
            return evaluation_works(self.tasks["evaluation"], options.seed, rollouts, step)

        if step in self.told and all(work.key in self.store.index for work in planned()):
            return True
        began = self.context.monotonic()
        with self.times.on("evaluation"):
            complete = await self._complete(planned)
        if not complete:
            return False
        event, seconds = self._evaluated(step), self.context.monotonic() - began
        said = ("step", "policy_version", "n_graded", "n_succeeded", "mean_reward")
        facts = {name: getattr(event, name) for name in said}
        self.note("evaluation_finished", **facts, seconds=seconds)
        self.told.add(step)
        self.observers.tell("ale_evaluation_finished", event)
        return True

    def _evaluated(self, step: int) -> EvaluationFinished:
        rewards = list(self.store.index.rewards(step, "evaluation"))
        llm = self.parts.llm
        return EvaluationFinished(
            step=step,
            policy_version=llm.policy_version if isinstance(llm, Policy) else None,
            n_graded=len(rewards),
            n_broken=self.store.index.broken(step, "evaluation"),
            n_succeeded=sum(reward == SUCCESS for reward in rewards),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            at=self.context.clock(),
        )

    async def _complete(self, planned: Callable[[], Iterator[Work]]) -> bool:
        """Run the episodes that are not on disk; False where some are missing for a Ctrl-C."""
        # In turns, one after the other: a later step takes only what an earlier one leaves free.
        async with asyncio.TaskGroup() as group, self.turn:
            for work in planned():
                if work.key not in self.store.index:
                    await self.slots.acquire()
                    if self.interrupt.draining:
                        self.slots.release()
                        break
                    group.create_task(self._episode(work))
        absent = [work.id for work in planned() if work.key not in self.store.index]
        if absent and not self.interrupt.draining:
            missing = counted(len(absent), "episode")
            raise AleError(f"{missing} not finished, for example {absent[0]}")
        return not absent and not self.interrupt.draining

    async def _episode(self, work: Work) -> None:
        """Run one; it is on disk before another takes its place."""
        try:
            episode = await self.runner.run(work)
            self.store.add_episode(episode)
            self.times.add(episode)
            event = EpisodeFinished(episode=episode, at=self.context.clock())
            self.observers.tell("ale_episode_finished", event)
        finally:
            self.slots.release()

    def _entered(self, work: Work, stage: Stage) -> None:
        event = EpisodeStage(
            episode_id=work.id,
            task_id=work.ready.task.id,
            stage=stage,
            at=self.context.clock(),
        )
        self.observers.tell("ale_episode_stage", event)

    async def _learn(self, step: int) -> None:
        """Credit a complete step and, where there is a trainer that has not had it yet, train."""
        crediting = crediting_of(self.config, self.parts)
        trainer = self.parts.trainer
        # Older checkpoints may be gone: the newest has learned from their steps too.
        trained = trainer is None or step <= self.store.checkpoints.newest()
        if trained and self.store.has_credits(step):
            return
        kept: list[CreditedGroup] = []
        with self.times.on("crediting"), self.store.writing_credits(step) as keep:
            for credited in crediting.groups(self.store.reader, self.store.index, step):
                if not trained:
                    kept.append(credited)
                for row in crediting.rows(credited):
                    keep(row)
                await asyncio.sleep(0)  # so that a Ctrl-C is heard
        if trainer is not None and not trained:
            await self._train(trainer, Batch(step=step, groups=tuple(kept)))

    async def _train(self, trainer: Trainer, batch: Batch) -> None:
        with self.times.on("training"):
            report = await trainer.step(batch)
        with self.times.on("hand_over"):
            await self._hand_over(trainer)
        with self.store.checkpoints.writing(batch.step) as folder:
            with self.times.on("checkpoint"):
                trainer.save(folder)
            metrics = {**self._facts(batch), **report.metrics, **self.times.of_step(batch.step)}
            report = replace(report, metrics=metrics)
            put_report(folder, report)
        self._tell_step(report)
        self.store.checkpoints.keep(self.config.run.keep_checkpoints)

    def _tell_step(self, report: StepReport) -> None:
        self.note("step_finished", step=report.step, metrics=report.metrics)
        event = StepFinished(report=report, at=self.context.clock())
        self.observers.tell("ale_step_finished", event)

    def _facts(self, batch: Batch) -> Mapping[str, float]:
        """What every step of every trainer is told with."""
        step = batch.step
        rewards = list(self.store.index.rewards(step))
        elsewhere = list(self.store.index.rewards(step, elsewhere=True))
        facts: dict[str, float] = {}
        if rewards:
            facts["success"] = sum(reward == SUCCESS for reward in rewards) / len(rewards)
            facts["mean_reward"] = sum(rewards) / len(rewards)
        if returns := list(_returns(batch)):
            facts["mean_return"] = sum(returns) / len(returns)
        if elsewhere:
            facts["success_from_starts"] = sum(r == SUCCESS for r in elsewhere) / len(elsewhere)
        facts["episodes"] = len(rewards) + len(elsewhere)
        facts["broken"] = self.store.index.broken(step, "train")
        return facts

    async def _hand_over(self, trainer: Trainer) -> None:
        """The only arrow back: the trainer's weights to the model, under their new version."""
        if isinstance(self.parts.llm, Policy):
            await self.parts.llm.load_policy(trainer.snapshot())

    async def _restore(self) -> None:
        """Go on from the newest checkpoint, where a run is resumed."""
        learned: set[int] = set()
        for event in self.store.reader.events():
            if event["event"] == "evaluation_finished":
                self.told.add(event["step"])
            elif event["event"] == "step_finished":
                learned.add(event["step"])
        trainer, checkpoints = self.parts.trainer, self.store.checkpoints
        newest = checkpoints.newest()
        if trainer is not None and newest >= 0:
            trainer.load(checkpoints.folder(newest))
            await self._hand_over(trainer)
            if newest not in learned:  # a kill fell between the checkpoint and the event
                self._tell_step(checkpoints.report(newest))
            checkpoints.keep(self.config.run.keep_checkpoints)

    def _tell_starts(self, step: int) -> None:
        if self.parts.starts is not None:
            self.parts.starts.learn(step, self._stored(step))

    def _stored(self, step: int) -> Iterator[Episode]:
        for offset in self.store.index.offsets(step):
            yield self.store.reader.episodes.at(offset)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, however deep it lies."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _returns(batch: Batch) -> Iterator[float]:
    """Of each episode that is the policy's own, what follows from its first chunk on."""
    for credited in batch.groups:
        for rollout, credit in zip(credited.group.rollouts, credited.credits, strict=True):
            if credit.returns and not rollout.episode.start:
                yield credit.returns[0]


def planned_episodes(config: RunConfig, tasks: Tasks) -> Mapping[Split, int] | None:
    """How many there will be in all; None where it depends on what happens."""
    if config.starts is not None:
        return None
    options, evaluation = config.run, config.evaluation
    drawn = tasks_per_step(tasks["train"], options)
    rounds = 0
    if evaluation is not None:
        due = {*range(0, options.steps, evaluation.options.every), options.steps}
        rounds = len(due) * evaluation.options.rollouts
    return {
        "train": options.steps * drawn * options.rollouts,
        "evaluation": rounds * len(tasks["evaluation"]),
    }


def crediting_of(config: RunConfig, parts: Parts) -> Crediting:
    """The config's chunker and scheme."""
    return Crediting(
        chunker=parts.chunker,
        chunker_name=config.chunker.name,
        scheme=parts.credit,
        scheme_name=config.credit.name,
    )
