"""Run planned episodes, at most `run.concurrency` at once; each is stored when it finishes."""

import asyncio
from collections.abc import Callable, Iterator

from attrs import field, frozen

from ale._config import RunOptions
from ale._run.early_stop import EarlyStop
from ale._run.execution import Jobs
from ale._run.hooks import Observers
from ale._run.interrupt import Interrupt
from ale._run.plan import EpisodePlan
from ale._run.times import Times
from ale._store import RunDirectory
from ale.errors import AleError
from ale.plugin import BuildContext
from ale.types import EpisodeFinished


@frozen(kw_only=True)
class Dispatcher:
    """Runs the episodes of one run."""

    jobs: Jobs
    options: RunOptions
    store: RunDirectory
    context: BuildContext
    interrupt: Interrupt
    observers: Observers
    times: Times
    early_stop: EarlyStop
    _slots: asyncio.Semaphore = field(init=False)
    """One slot for each episode that may run at once."""
    _admission: asyncio.Lock = field(factory=asyncio.Lock)
    """Steps start their episodes in turn: a later step gets only slots that are left free."""

    @_slots.default
    def _make_slots(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.options.concurrency)

    async def run(self, plans: Callable[[], Iterator[EpisodePlan]]) -> bool:
        """Run the episodes that are not on disk; False if a Ctrl-C left some of them out.

        Args:
            plans: called again for each pass over them, so that they are never all in memory.

        Raises:
            AleError: some are still missing at the end.
            StoppedEarlyError: the first episodes all broke for one reason; raised in an exception
                group.
        """
        async with asyncio.TaskGroup() as group, self._admission:
            for plan in plans():
                if plan.key not in self.store.index:
                    await self._slots.acquire()
                    if self.interrupt.draining:
                        self._slots.release()
                        break
                    group.create_task(self._run_one(plan))
        # Not a list: an interrupted run may have planned more episodes than memory holds.
        missing = (plan.id for plan in plans() if plan.key not in self.store.index)
        first = next(missing, None)
        if first is not None and not self.interrupt.draining:
            number = 1 + sum(1 for _ in missing)
            raise AleError(f"{number} episodes were not finished, among them {first}")
        return first is None and not self.interrupt.draining

    async def _run_one(self, plan: EpisodePlan) -> None:
        """Run and store one episode, then free its slot."""
        try:
            episode = await self.jobs.run(plan)
            if episode is None or self.early_stop.cause is not None:
                return  # finished while the run was stopping: sampled again with the others
            self.store.add_episode(episode)
            await self.jobs.stored(plan)
            self.times.add(episode)
            event = EpisodeFinished(episode=episode, at=self.context.clock())
            self.observers.notify("ale_episode_finished", event)
            self.early_stop.add(episode)
        finally:
            self._slots.release()
