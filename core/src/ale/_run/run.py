"""Execute a run: prune old sandboxes, run the loop, record how it ended."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from attrs import frozen

from ale._run.control import listening
from ale._run.dispatch import Dispatcher, executing
from ale._run.evaluation import Evaluator
from ale._run.manifest import Change
from ale._run.parts import not_pruned
from ale._run.plan import StartPlan, planned_episodes
from ale._run.preflight import limit_problems, most_possible
from ale._run.schedule import Scheduler
from ale._run.session import Session, StoppedEarlyError
from ale._run.training import Training
from ale.errors import InputError, StoreError
from ale.protocols import Workers
from ale.text import counted
from ale.types import RunFinished, RunStarted, RunSteered

ENDED_EARLY = {"drained": 4, "halted": 5}
"""Exit status of a run whose budget is spent, or that was asked to stop; of one that a rule
stopped."""

_HOUR_S = 3600.0


@frozen(kw_only=True)
class Run(Session):
    """A run whose parts are built and checked; no sandbox is open yet."""

    conduct: Callable[[Session, Training, Evaluator], Awaitable[str]] | None = None
    """Does the run's work with episodes that come from elsewhere, and returns the outcome; without
    it the scheduler does, with the run's own."""
    changes: Sequence[Change] = ()
    """Changes that a resume has made to the config."""
    startup_s: float = 0.0
    """Seconds that the program needed before the run; they count towards its time."""

    async def execute(self) -> RunFinished:
        """Do what remains to be done, unless the first episodes all break for the same reason.

        Raises:
            StoreError: the run directory can't be written. Its content stays readable.
        """
        with self.interrupt.listening(drain=self.config.run.on_sigterm == "drain"):
            return await self._execute()

    async def _execute(self) -> RunFinished:
        started = self.context.clock()
        had = len(self.store.index)
        was_complete = self.store.was_complete and not self.store.index.missing()
        if self.config.run.concurrency == "auto":
            self._limit("auto")
        self.record_event("run_resumed" if len(self.store.index) else "run_started")
        self._keep_changes()
        self.observers.notify("ale_run_started", self._started())
        outcome = "failed"
        self.store.begin()
        try:
            await self._prune()
            plan = StartPlan(
                tasks=self.tasks["train"],
                options=self.config.run,
                scheme=self.parts.starts,
                store=self.store,
                trains=self.parts.trainer is not None,
            )
            async with executing(self, plan.start_of) as workers:
                self.interrupt.on_drain += [workers.drain, self.control.changed]
                self.times.begin()
                async with self._steered():
                    self.check_budget()
                    outcome = await self._work(workers, plan)
                    if outcome == "drained" and self.watch.stopped and not self.interrupt.signal:
                        outcome = "halted"
                    await asyncio.gather(*self.posting)
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
            if was_complete and outcome == "completed" and len(self.store.index) == had:
                spent = 0.0  # nothing was missing: to look at a run does not make it longer
            finished = self._finished(outcome, spent)
            with suppress(StoreError):  # a full disk was reported before: do not hide that
                found = self.early_stop.cause or self._why_ended(outcome)
                cause = {} if found is None else {"cause": found}
                self.record_event("run_finished", outcome=outcome, **cause)
                described = {"outcome": outcome, **self.store.index.totals()}
                described["seconds"] = spent + self.store.earlier_s
                self.store.set_outcome(described, discard=outcome == "stopped")
            self.observers.notify("ale_run_finished", finished)
        return finished

    def _why_ended(self, outcome: str) -> str | None:
        """Why the run ended early, if it did so by itself."""
        if outcome == "halted":
            return str(self.watch.stopped)
        spent = self.budget_spent() if outcome == "drained" else None
        return None if spent is None else f"the budget is spent: {spent}"

    @asynccontextmanager
    async def _steered(self) -> AsyncIterator[None]:
        """Inside the block, requests are taken, and the hours of the budget watched."""
        with self._within_hours():
            async with listening(self.store.path, self._carry_out, self.say):
                yield

    def _carry_out(self, action: str, to: int | str | None) -> dict[str, Any]:
        """Do what was asked for. Raises `InputError` if it can't be done."""
        if action == "state":
            return self._state()
        if self.conduct is not None and action not in self._takes():
            raise InputError.of("episodes come from elsewhere: only stop can be asked of this run")
        about = self._acted(action, to)
        self.control.changed()
        self.record_event("steered", action=action, **about, **self.control.state())
        self._notify_steered(action, **about)
        if action != "stop":  # which says so itself
            self.report(self._told(action, **about))
        return self._state()

    def _notify_steered(self, action: str, episode: str | None = None) -> None:
        control = self.control
        event = RunSteered(
            run_id=self.context.run_id,
            action=action,
            episode=episode,
            paused=control.paused,
            concurrency=control.concurrency,
            auto=control.adaptive is not None,
            at=self.context.clock(),
        )
        self.observers.notify("ale_run_steered", event)

    def _told(self, action: str, episode: str = "") -> str:
        """Words for the user, of an action that somebody else may have asked for."""
        return {
            "pause": "paused: no further episode starts until 'ale steer RUN resume'",
            "resume": "resumed after a pause",
            "concurrency": f"{counted(self.control.concurrency, 'episode')} at once, as was asked"
            f"{' (auto)' if self.control.adaptive is not None else ''}",
            "cancel": f"{episode}: cancelled, as was asked",
            "evaluate": "the policy is evaluated after this step, as was asked",
            "stop-after-step": "the run ends after this step, as was asked",
        }[action]

    def _acted(self, action: str, to: int | str | None) -> dict[str, Any]:
        """Do it; what else the event says."""
        control = self.control
        if action == "concurrency":
            self._limit(to)
        elif isinstance(to, str):
            control.cancel(to)
            return {"episode": to}
        elif action in ("pause", "resume"):
            control.paused = action == "pause"
        elif action == "evaluate":
            if self.config.evaluation is None:
                raise InputError.of("the config has no section evaluation", path="evaluation")
            control.evaluates = True
        elif action == "stop-after-step":
            control.stops = True
        else:
            self.interrupt.drain("Finishing the running episodes: the run was asked to stop.")
        return {}

    def _limit(self, to: object) -> None:
        """Set the number of episodes at once, or let it change by itself."""
        if not isinstance(to, int):
            self.control.adapt(most_possible(self.parts.sandbox), self.context.monotonic())
            return
        if problems := [*limit_problems(to, self.parts.sandbox)]:
            raise InputError(problems)
        self.control.concurrency, self.control.adaptive = to, None

    def _state(self) -> dict[str, Any]:
        control = self.control
        facts = {"stopping": self.interrupt.draining, "episodes": control.episodes()}
        return {**control.state(), **facts, "takes": [*self._takes()]}

    def _takes(self) -> Iterator[str]:
        """The actions that can change something in this run."""
        if self.conduct is None:
            yield from ("pause", "resume", "concurrency")
            if self.control.here is not None:
                yield "cancel"
            if self.config.evaluation is not None:
                yield "evaluate"
            if (self.config.run.steps or 1) > 1 or self.parts.trainer is not None:
                yield "stop-after-step"
        yield "stop"

    @contextmanager
    def _within_hours(self) -> Iterator[None]:
        """Inside the block, let the run drain when the hours of its budget are over."""
        hours = None if (spending := self.spending) is None else spending.budget.hours
        if spending is None or hours is None:
            yield
            return

        def over() -> None:
            spending.out_of_time = True
            self.check_budget()

        before = self.store.earlier_s + spending.killed_s + self.startup_s
        left = hours * _HOUR_S - before
        spending.out_of_time = left <= 0
        timer = asyncio.get_running_loop().call_later(max(0.0, left), over)
        try:
            yield
        finally:
            timer.cancel()

    def _keep_changes(self) -> None:
        """Store what a resume has changed of the config, so that the next one has it, too."""
        if not self.changes:
            return
        self.store.set_config(self.config.resolved)
        made = {each.path: {"before": each.before, "now": each.now} for each in self.changes}
        self.record_event("config_changed", changes=made)

    async def _work(self, workers: Workers, plan: StartPlan) -> str:
        dispatcher, training = Dispatcher(self, workers, plan.in_place_of), Training(self)
        evaluator = Evaluator(self, dispatcher, training.saved)
        if self.conduct is not None:
            return await self.conduct(self, training, evaluator)
        return await Scheduler(self, dispatcher, training, evaluator, plan).run()

    async def _prune(self) -> None:
        """Remove sandboxes whose run was killed; those of live runs are left alone."""
        if self.parts.executor.remote:
            return  # there are no sandboxes here: workers remove their own
        try:
            pruned = await self.parts.sandbox.prune()
        except Exception as error:
            self.say(not_pruned(self.parts.sandbox.name, error))
            return
        for info in pruned:
            self.record_event("pruned", sandbox=info.id, tags=info.tags)

    def _started(self) -> RunStarted:
        index = self.store.index
        own = self.conduct is None  # else there are as many as come
        planned = planned_episodes(self.config, self.tasks) if own else None
        totals = index.totals()
        return RunStarted(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            n_episodes=None if planned is None else sum(planned.values()) + self._in_place(),
            n_done=len(index) - index.missing(),
            n_graded=totals["n_graded"],
            n_succeeded=totals["n_succeeded"],
            n_evaluated=index.count("evaluation"),
            n_expert_guided=index.expert_guided(),
            concurrency=self.control.concurrency,
            config=self.config.resolved,
            at=self.context.clock(),
        )

    def _in_place(self) -> int:
        """Stored episodes that were sampled in the place of broken ones."""
        if self.parts.trainer is None or self.parts.starts is not None:
            return 0
        return self.store.index.beyond(self.config.run.rollouts)

    def _finished(self, outcome: str, seconds: float) -> RunFinished:
        return RunFinished(
            run_id=self.context.run_id,
            directory=str(self.store.path),
            outcome=outcome,
            n_expert_guided=self.store.index.expert_guided(),
            seconds=seconds,
            at=self.context.clock(),
            **self.store.index.totals(),
        )
