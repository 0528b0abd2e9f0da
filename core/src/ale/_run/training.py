"""Learn from a complete step: credit its episodes, train on them, update the model's weights."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from ale._run.crediting import Crediting, is_credited
from ale._run.plan import has_signal
from ale._run.scoring import Scoring
from ale._run.session import Session
from ale._store.checkpoints import write_report
from ale._store.index import SUCCESS
from ale._store.scores import StoredScores
from ale.attempts import mean
from ale.errors import PluginError, StoreError
from ale.protocols import BackgroundSaver, Policy, Trainer
from ale.types import (
    FEEDBACK,
    Batch,
    CreditedGroup,
    PolicySnapshot,
    StepFinished,
    StepReport,
    replace,
)

T = TypeVar("T")


@frozen
class _Saving:
    """A checkpoint that is being written, and the report of its step."""

    report: StepReport
    written: "asyncio.Future[None] | None"
    """Done when the checkpoint is written; None if it already is."""


class Training:
    """Credits the steps of one run and trains on each of them once."""

    def __init__(self, session: Session) -> None:
        self.config, self.parts = session.config, session.parts
        self.store, self.times = session.store, session.times
        self._session = session
        self._saving: _Saving | None = None
        """The checkpoint that is being written."""

    async def restore(self) -> None:
        """Load a resumed run's newest checkpoint, and report its step if that was missed."""
        trainer, checkpoints = self.parts.trainer, self.store.checkpoints
        newest = checkpoints.newest()
        if trainer is None or newest < 0:
            return
        checkpoints.report(newest)  # of another step, it would not be refused below
        await self.load(checkpoints.folder(newest))
        self.report_missed()
        self._tidy()

    async def load(self, folder: Path) -> None:
        """Continue from a checkpoint, and sample from its policy."""
        if self.parts.trainer is not None:
            await self.saved()  # processes can't read while they are writing
            self.parts.trainer.load(folder)
            await self._update_model(self.parts.trainer)

    def report_missed(self) -> None:
        """Report the newest step if the run was killed between its checkpoint and its event."""
        newest = self.store.checkpoints.newest()
        events = self.store.reader.events()
        reported = {event["step"] for event in events if event["event"] == "step_finished"}
        if newest >= 0 and newest not in reported:
            self._report(self.store.checkpoints.report(newest))

    def has_learned(self, step: int) -> bool:
        """Is the step credited, and the policy trained on it?"""
        credited = self._crediting() is None or self.store.has_credits(step)
        return credited and self._has_trained(step)

    def _crediting(self) -> Crediting | None:
        """None for a run that trains nothing, and has no chunker or no credit scheme."""
        config, parts = self.config, self.parts
        if parts.chunker is None or parts.credit is None:
            return None
        assert config.chunker is not None
        assert config.credit is not None
        return Crediting(
            chunker=parts.chunker,
            chunker_name=config.chunker.name,
            scheme=parts.credit,
            scheme_name=config.credit.name,
        )

    def _has_trained(self, step: int) -> bool:
        # Older checkpoints may be gone, but the newest includes their steps.
        saving = -1 if self._saving is None else self._saving.report.step
        newest = max(saving, self.store.checkpoints.newest())
        return self.parts.trainer is None or step <= newest

    async def learn(self, step: int, facts: Mapping[str, float] | None = None) -> None:
        """Credit a complete step; train on it unless a checkpoint already includes it.

        Args:
            facts: metrics to add to the step's own.
        """
        crediting = self._crediting()
        if self.has_learned(step) or crediting is None:
            return
        trainer, trained = self.parts.trainer, self._has_trained(step)
        groups: list[CreditedGroup] = []
        await self._score(crediting, step)
        facts = {**(facts or {}), **self._abstentions(step)}
        with self.times.on("crediting"), self.store.writing_credits(step) as write:
            found = crediting.groups(self.store.reader, self.store.index, step, regraded=False)
            for credited in found:
                if not trained:
                    groups.append(credited)
                for row in crediting.rows(credited, step):
                    write(row)
                await asyncio.sleep(0)  # lets the event loop handle a Ctrl-C
        if trainer is not None and not trained:
            await self._train(trainer, Batch(step=step, groups=tuple(groups)), facts)

    async def _score(self, crediting: Crediting, step: int) -> None:
        """Run the scorers on the episodes of a step that they have not scored yet."""
        if not self.parts.scorers:
            return
        scoring = Scoring(
            scorers=self.parts.scorers,
            chunker=crediting.chunker,
            chunker_name=crediting.chunker_name,
        )
        reader = self.store.reader
        wanted = {key.task_id for key in self.store.index.group_keys(step)}
        tasks = {task.id: task for task in reader.tasks if task.id in wanted}
        episodes = ((tasks[each.task_id], each) for each in self.store.graded(step))
        with self.times.on("scoring"):
            await scoring.score(
                episodes,
                StoredScores(reader.step_scores(step, regraded=False)),
                self._session.control.concurrency,
                lambda row: self.store.add_scores(row, step),
            )

    def _abstentions(self, step: int) -> Mapping[str, float]:
        """Share of the chunks of a step that each scorer gave no value."""
        found: dict[str, list[bool]] = {}
        if self.parts.scorers:
            for row in self.store.reader.step_scores(step, regraded=False):
                if row.scorer != FEEDBACK:
                    gave = found.setdefault(row.scorer, [])
                    gave += [score.value is None for score in row.scores]
        return {f"abstained_{name}": sum(each) / len(each) for name, each in found.items() if each}

    async def _train(self, trainer: Trainer, batch: Batch, facts: Mapping[str, float]) -> None:
        with self.times.on("training"):
            report = _returned(await trainer.step(self._learned(batch)), StepReport, trainer)
        with self.times.on("hand_over"):
            await self._update_model(trainer)
        await self.saved()  # at most one checkpoint is written at a time
        folder = self.store.checkpoints.start(batch.step)
        with self.times.on("checkpoint"):
            if isinstance(trainer, BackgroundSaver):
                finish = trainer.start_saving(folder)
            else:
                trainer.save(folder)
                finish = None
        index = self.store.index
        groups = index.group_keys(batch.step)
        times = self.times.of_step(groups, stream=index.stream is not None)
        metrics = {**self._metrics(batch), **facts, **report.metrics, **times}
        report = replace(report, metrics=metrics)
        write_report(folder, report)
        written = None if finish is None else asyncio.create_task(asyncio.to_thread(finish))
        self._saving = _Saving(report, written)
        self._session.check_rules(report)
        if written is None:
            await self.saved()

    def _learned(self, batch: Batch) -> Batch:
        """The batch without the groups that ``run.refills`` has replaced."""
        if not self.config.run.refills:
            return batch
        chosen = [
            each
            for each in batch.groups
            if has_signal([rollout.episode.reward for rollout in each.group.rollouts])
        ]
        return replace(batch, groups=tuple(chosen))

    async def saved(self) -> None:
        """Wait until the last checkpoint is written; only then is its step reported.

        Raises:
            StoreError: it can't be written.
        """
        if (saving := self._saving) is None:
            return
        if saving.written is not None:
            await asyncio.shield(saving.written)  # continues even if the run is cancelled
        self._saving = None
        self.store.checkpoints.complete(saving.report.step)
        self._report(saving.report)
        self._tidy()

    @asynccontextmanager
    async def saved_at_end(self) -> AsyncIterator[None]:
        """Await `saved` however the block ends. If both fail, the block's error is raised."""
        try:
            yield
        except (Exception, asyncio.CancelledError):
            with suppress(StoreError):
                await self.saved()
            raise
        await self.saved()

    def _tidy(self) -> None:
        options = self.config.run
        self.store.checkpoints.keep_newest(options.keep_checkpoints, options.keep_checkpoints_every)

    async def _update_model(self, trainer: Trainer) -> None:
        """Give the trainer's weights to the model, with their new version."""
        if isinstance(self.parts.llm, Policy):
            snapshot = _returned(trainer.snapshot(), PolicySnapshot, trainer)
            await self.parts.llm.load_policy(snapshot)

    def _report(self, report: StepReport) -> None:
        self._session.record_event("step_finished", step=report.step, metrics=report.metrics)
        event = StepFinished(report=report, at=self._session.context.clock())
        self._session.observers.notify("ale_step_finished", event)

    def _metrics(self, batch: Batch) -> Mapping[str, float]:
        """Metrics of every step, independent of the trainer."""
        step, index = batch.step, self.store.index
        rewards = list(index.rewards(step))
        guided = list(index.rewards(step, expert_guided=True))
        metrics: dict[str, float] = {}
        if rewards:
            metrics["success"] = sum(reward == SUCCESS for reward in rewards) / len(rewards)
            metrics["mean_reward"] = mean(rewards)
        if returns := list(_returns(batch)):
            metrics["mean_return"] = mean(returns)
        if guided:
            metrics["success_from_starts"] = sum(r == SUCCESS for r in guided) / len(guided)
        metrics["episodes"] = len(rewards) + len(guided)
        metrics["broken"] = index.broken(step, "train")
        groups = [rewards for rewards in index.group_rewards(step).values() if len(rewards) > 1]
        if groups:
            metrics["groups_with_signal"] = sum(map(has_signal, groups)) / len(groups)
        return {**metrics, **self._of_stream(step)}

    def _of_stream(self, step: int) -> Mapping[str, float]:
        """Staleness of the groups of a stream, in steps."""
        found = self.store.groups
        ages = found.ages(step)
        if not ages:
            return {}
        return {
            "staleness_mean": sum(ages) / len(ages),
            "staleness_max": max(ages),
            "groups_too_stale": sum(age > self.config.run.staleness for age in ages),
            "groups_dropped": found.n_dropped.get(step, 0),
        }


def _returned(value: object, wanted: type[T], trainer: Trainer) -> T:
    if not isinstance(value, wanted):
        found, name = type(trainer).__qualname__, wanted.__name__
        raise PluginError(f"the trainer {found} returned {value!r}, expected a {name}")
    return value


def _returns(batch: Batch) -> Iterator[float]:
    """The return of each episode that was not expert-guided: that of its first credited chunk."""
    for credited in batch.groups:
        for rollout, credit in credited.pairs():
            if credit.returns and not rollout.episode.start:
                pairs = zip(rollout.chunks, credit.returns, strict=True)
                yield next((g for chunk, g in pairs if is_credited(chunk, rollout.episode)), 0.0)
