"""The training loop: each step samples episodes, assigns credit, trains, and evaluates if due."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from attrs import frozen

from ale._config import RunConfig
from ale._run.dispatch import Dispatcher, refuse_lost
from ale._run.evaluation import Evaluator
from ale._run.parts import Tasks
from ale._run.plan import episode_plans, further_starts, starts_of_step, tasks_per_step
from ale._run.session import Session
from ale._run.training import Training
from ale.protocols import Start
from ale.types import Split


@frozen
class _RunningStep:
    """A step whose episodes are running."""

    demonstrates: bool
    """Some of the step's starts are demonstrations."""
    complete: asyncio.Task[bool]
    """Ends with the step's last episode; its result is False after a Ctrl-C."""


class Loop:
    """The steps of a run. What is already done is read from the run directory alone."""

    def __init__(
        self, session: Session, dispatcher: Dispatcher, training: Training, evaluator: Evaluator
    ) -> None:
        self.session, self.config, self.parts = session, session.config, session.parts
        self.tasks, self.store, self.times = session.tasks, session.store, session.times
        self.dispatcher, self.training, self.evaluator = dispatcher, training, evaluator

    async def run(self) -> str:
        """Do what remains to be done; returns ``completed``, or ``drained`` after a Ctrl-C.

        The episodes of a step may start when the policy has learned from all but the last
        `staleness` steps before it: admit while accepted + running < (eta + version + 1) * B
        (AReaL, arXiv:2505.24298). With staleness 0, each step waits for the previous one.
        """
        try:
            async with asyncio.TaskGroup() as group, self.training.saved_at_end():
                return await self._run(group)
        except ExceptionGroup as errors:
            # A full disk fails every episode: the first error is enough.
            raise _first_of(errors) from None

    async def _run(self, group: asyncio.TaskGroup) -> str:
        await self.training.restore()
        n_steps, staleness = self.config.run.steps, self.config.run.staleness
        running: deque[_RunningStep] = deque()
        planned = [self._starts(step) for step in range(min(staleness + 1, n_steps))]
        if not await self.evaluator.evaluate(0, due=False):
            return "drained"
        running.extend(self._start_step(group, step, each) for step, each in enumerate(planned))
        for step in range(n_steps):
            current = running.popleft()
            with self.times.on("rollouts"):
                complete = await current.complete
            if not complete:
                return "drained"
            await self.training.learn(step)
            if self.parts.starts is not None:
                self.parts.starts.learn(step, self.store.graded(step))
            # Planned before the evaluation: a scheme's plan depends only on the steps.
            last, following = step + 1 == n_steps, step + 1 + staleness
            starts = self._starts(following) if following < n_steps else ()
            still = running[0].demonstrates if running else _demonstrates(starts)
            # The end of the demonstrations is evaluated, to show what imitation achieved.
            shown = current.demonstrates and not still
            if not await self.evaluator.evaluate(step + 1, due=last or shown, shown=shown):
                return "drained"
            if following < n_steps:
                running.append(self._start_step(group, following, starts))
        return "completed"

    def _starts(self, step: int) -> Sequence[Start]:
        return starts_of_step(self.tasks["train"], self.config.run, step, self.parts.starts)

    def _start_step(
        self, group: asyncio.TaskGroup, step: int, starts: Sequence[Start]
    ) -> _RunningStep:
        episodes = self._sample(step, starts)
        return _RunningStep(_demonstrates(starts), group.create_task(episodes))

    async def _sample(self, step: int, starts: Sequence[Start]) -> bool:
        """Run a step's episodes, and those of its refills; False after a Ctrl-C.

        What a refill draws depends only on the rewards of what was drawn before it, so a resumed
        step draws the same.
        """
        tasks, options = self.tasks["train"], self.config.run
        drawn = list(starts)
        for refill in range(options.refills + 1):
            refuse_lost(self.session, step, episode_plans(tasks, options, step, drawn))
            if not await self.dispatcher.run(lambda: episode_plans(tasks, options, step, drawn)):
                return False
            if refill < options.refills:
                index = self.store.index
                more = further_starts(tasks, self.config, index, step, drawn, len(starts))
                if not more:
                    break
                drawn.extend(more)
        return True


def _demonstrates(starts: Sequence[Start]) -> bool:
    return any(start.demonstration for start in starts)


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, however deep it is nested."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def planned_episodes(config: RunConfig, tasks: Tasks) -> Mapping[Split, int] | None:
    """The number of episodes by split; None where it is decided during the run."""
    if config.starts is not None or config.run.refills or config.run.too_stale == "drop":
        return None
    options, evaluation = config.run, config.evaluation
    rounds = 0
    if evaluation is not None:
        due = {*range(0, options.steps, evaluation.options.every), options.steps}
        rounds = len(due) * evaluation.options.rollouts * len(config.evaluation_temperatures)
    return {
        "train": options.steps * tasks_per_step(tasks["train"], options) * options.rollouts,
        "evaluation": rounds * len(tasks["evaluation"]),
    }
