"""Run planned episodes, at most `run.concurrency` at once; each is stored when it finishes."""

import asyncio
from collections.abc import Callable, Iterator

from ale._run.execution import Jobs
from ale._run.plan import EpisodePlan
from ale._run.session import Session
from ale.errors import AleError
from ale.types import EpisodeFinished


class Dispatcher:
    """Runs the episodes of one run."""

    def __init__(self, session: Session, jobs: Jobs) -> None:
        self._session = session
        self._jobs = jobs
        self._slots = asyncio.Semaphore(session.config.run.concurrency)
        """One slot for each episode that may run at once."""
        self._admission = asyncio.Lock()
        """Steps start their episodes in turn: a later step gets only slots that are left free."""

    async def run(self, plans: Callable[[], Iterator[EpisodePlan]]) -> bool:
        """Run the episodes that are not on disk; False if a Ctrl-C left some of them out.

        Args:
            plans: called again for each pass over them, so that they are never all in memory.

        Raises:
            AleError: some are still missing at the end.
            StoppedEarlyError: the first episodes all broke for one reason; raised in an exception
                group.
        """
        index, interrupt = self._session.store.index, self._session.interrupt
        async with asyncio.TaskGroup() as group, self._admission:
            for plan in plans():
                if plan.key not in index:
                    await self._slots.acquire()
                    if interrupt.draining:
                        self._slots.release()
                        break
                    group.create_task(self._run_one(plan))
        # Not a list: an interrupted run may have planned more episodes than memory holds.
        missing = (plan.job.id for plan in plans() if plan.key not in index)
        first = next(missing, None)
        if first is not None and not interrupt.draining:
            number = 1 + sum(1 for _ in missing)
            raise AleError(f"{number} episodes were not finished, among them {first}")
        return first is None and not interrupt.draining

    async def _run_one(self, plan: EpisodePlan) -> None:
        """Run and store one episode, then free its slot."""
        session = self._session
        try:
            episode = await self._jobs.run(plan)
            if episode is None or session.early_stop.cause is not None:
                return  # finished while the run was stopping: sampled again with the others
            session.store.add_episode(episode)
            await self._jobs.workers.stored(plan.job)
            session.times.add(episode)
            event = EpisodeFinished(episode=episode, at=session.context.clock())
            session.observers.notify("ale_episode_finished", event)
            session.early_stop.add(episode)
        finally:
            self._slots.release()
