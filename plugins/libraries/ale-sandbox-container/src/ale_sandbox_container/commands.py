"""The commands of one container: start, wait for the end, kill with all descendants."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_container import script
from ale_sandbox_container.pool import ANSWER_S, NoProcessError, WorkerPool
from ale_sandbox_container.worker import Job
from ale_sandbox_shell.session import KILLED

_LOG = logging.getLogger(__name__)
_TRIES = 3


@frozen
class Running:
    """A command that a worker shell runs."""

    number: int
    pool: WorkerPool
    job: Job
    starts: int
    """How often the container had been started by then."""


@frozen(kw_only=True)
class Outcome:
    """How a command has ended."""

    code: int
    timed_out: bool = False
    begun: bool = True
    """False: its process could not be had, or could not put the limits on itself."""


class Commands:
    """Runs commands in the worker shells of a container.

    Args:
        pool: worker shells of the container's own user.
        user_pool: makes a pool of worker shells of another user.
        restart: kills everything in the container, restarts it, and returns its new pool.
            Raises SandboxError where the container has ended by itself.
        root: user whose worker shells kill processes that became root, where programs may gain
            privileges; as for `start`. False where they may not.
    """

    def __init__(
        self,
        id: str,
        pool: WorkerPool,
        *,
        user_pool: Callable[[str], WorkerPool],
        restart: Callable[[], Awaitable[WorkerPool]],
        root: str | Literal[False] | None = False,
    ) -> None:
        self._id = id
        self._pools: dict[str | None, WorkerPool] = {None: pool}
        self._user_pool = user_pool
        self._restart = restart
        self._root = root
        self._restarting = asyncio.Lock()
        self._starts = 0
        self._count = 0
        self._running: dict[int, Running] = {}
        self._cleaning: set[asyncio.Task[None]] = set()
        self._broken: str | None = None
        self.closed = False

    def _pool(self, user: str | None) -> WorkerPool:
        if user not in self._pools:
            assert user is not None
            self._pools[user] = self._user_pool(user)
        return self._pools[user]

    async def start(self, user: str | None, frame: Callable[[int], bytes]) -> Running:
        """Give a command to a worker shell, which returns to the pool when the command ends.

        Args:
            frame: makes the script for the worker shell from the number of the command.

        Raises:
            SandboxError: the container has ended, or has no process left.
        """
        for _ in range(_TRIES):
            self.check_open()
            starts, running = self._starts, None
            try:
                running = await self._ask(user, frame)
                await asyncio.wait_for(asyncio.shield(running.job.begun), ANSWER_S)
            except NoProcessError:
                raise
            except (TimeoutError, SandboxError) as error:
                # What was to be started has not run yet: it can be started again.
                await self._start_again(starts, f"its supervisor does not answer ({error})")
            except asyncio.CancelledError:
                if running is not None:
                    await asyncio.shield(asyncio.ensure_future(self.end(running)))
                raise
            else:
                return running
        raise SandboxError(f"something in sandbox {self._id} stops its supervisor")

    async def _ask(self, user: str | None, frame: Callable[[int], bytes]) -> Running:
        pool = self._pool(user)
        worker = await pool.acquire()
        self._count += 1
        running = Running(self._count, pool, worker.ask(frame(self._count)), self._starts)
        self._running[running.number] = running

        def ended(job: "asyncio.Future[tuple[int, ...] | None]") -> None:
            del self._running[running.number]
            pool.release(worker)
            if job.result() is None and not pool.closed:
                # Something inside has killed the worker shell, and with it the exit code.
                self._clean(running)

        running.job.ended.add_done_callback(ended)
        return running

    async def outcome(self, running: Running, timeout_s: float | None) -> Outcome:
        """Wait for a command's end; kill it on timeout or cancellation.

        Raises:
            SandboxError: the sandbox was closed meanwhile.
        """
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                numbers = await asyncio.shield(running.job.ended)
        except TimeoutError:
            timed_out = True
            await self.end(running)
            numbers = running.job.ended.result()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self.end(running)))
            raise
        self.check_open()
        if numbers is None:
            await self.end(running)
            self.check_open()
        return Outcome(
            code=KILLED if numbers is None else numbers[0],
            timed_out=timed_out,
            begun=numbers is None or running.job.begun.result(),
        )

    def check_open(self) -> None:
        """Raise where the sandbox was closed while a command ran, or its container is no more."""
        if self.closed:
            raise SandboxError(f"sandbox {self._id} was closed while the command ran")
        if self._broken is not None:
            raise SandboxError(self._broken)

    def _clean(self, running: Running) -> None:
        task = asyncio.ensure_future(self.end(running))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaned)

    def _cleaned(self, task: "asyncio.Task[None]") -> None:
        self._cleaning.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # The next call on the sandbox runs into the same error and raises it.
            _LOG.warning("sandbox %s: %s", self._id, task.exception())

    async def end(self, running: Running) -> None:
        """Kill a command with its descendants, and wait for its end.

        Where something inside prevents that, the container is restarted.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                begun = await asyncio.shield(running.job.begun)
                if begun or not running.job.ended.done() or running.job.ended.result() is None:
                    pool = running.pool if self._root is False else self._pool(self._root)
                    await self._kill(pool, running.number)
                    await asyncio.shield(running.job.ended)
        except (TimeoutError, SandboxError) as error:
            if not self.closed:
                await self._start_again(running.starts, f"a command would not end ({error})")

    async def _kill(self, pool: WorkerPool, number: int | None) -> int:
        """Kill the processes of one command (None: of all commands); returns how many."""
        for _ in range(_TRIES):
            if self.closed or pool.closed:
                # Everything has ended, or will have when the container has been started again.
                async with self._restarting:
                    return 0
            worker = await pool.acquire(spare=True)
            job = worker.ask(script.kill(number))
            job.ended.add_done_callback(lambda _, worker=worker: pool.release(worker))  # type: ignore[misc]
            numbers = await asyncio.shield(job.ended)
            if numbers is None:
                continue  # that worker was killed meanwhile
            killed, left = numbers
            if left:
                raise SandboxError(f"{left} processes in sandbox {self._id} would not end")
            return killed
        raise SandboxError(f"something in sandbox {self._id} kills whatever would kill it")

    async def end_all(self) -> int:
        """Kill every process but the supervisor's; returns how many."""
        starts, running = self._starts, list(self._running.values())
        try:
            async with asyncio.timeout(ANSWER_S):
                for command in running:
                    await asyncio.shield(command.job.begun)
                count = 0
                if self._root is not False:
                    self._pool(self._root)
                for pool in list(self._pools.values()):
                    count += await self._kill(pool, None)
                for command in running:
                    await asyncio.shield(command.job.ended)
        except (TimeoutError, SandboxError) as error:
            self.check_open()
            await self._start_again(starts, f"its processes would not end ({error})")
            return len(running)
        return count

    async def _start_again(self, starts: int, why: str) -> None:
        """Restart the container, once for all concurrent callers."""
        async with self._restarting:
            if starts != self._starts:
                return
            self.check_open()
            for pool in self._pools.values():
                pool.close(f"sandbox {self._id} was started again")
            try:
                self._pools = {None: await self._restart()}
            except SandboxError as error:
                self._broken = str(error)
                raise
            _LOG.warning("sandbox %s was started again: %s", self._id, why)
            self._starts += 1

    def close(self) -> None:
        """Close all pools: the container is about to end."""
        self.closed = True
        for pool in self._pools.values():
            pool.close(f"sandbox {self._id} is closed")
        for task in self._cleaning:
            task.cancel()
