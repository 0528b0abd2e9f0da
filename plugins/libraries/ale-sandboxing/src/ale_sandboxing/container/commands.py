"""The commands of one container: start, wait for the end, kill with all descendants."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Literal

from attrs import field, frozen

from ale.errors import SandboxDamagedError, SandboxError, SandboxLostError
from ale_sandboxing.container import script, worker
from ale_sandboxing.container.pool import NoProcessError, WorkerPool
from ale_sandboxing.container.stream import STDOUT
from ale_sandboxing.container.worker import Job, Numbers, Supervisor, Worker
from ale_sandboxing.shell.capture import KILLED

_LOG = logging.getLogger(__name__)
_TRIES = 3
_MOST_STARTS = 5
"""Times that one container is started again; each costs its sandbox up to 20 seconds."""
_LOOK_S = 0.1
_LONGEST_LOOK_S = 30.0
_KILLED_BEFORE_S = 30.0

Text = Callable[[int, bytes], bytes]
"""Makes the script for a worker from a command's number and mark."""


@frozen
class Running:
    """A command that a worker runs."""

    number: int
    pool: WorkerPool
    worker: Worker
    job: Job
    starts: int
    """How often the container had been started by then."""
    at: float = field(factory=lambda: asyncio.get_running_loop().time())
    """When it was asked for."""
    lost: "asyncio.Future[str | None]" = field(
        factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Where its worker has ended: why the connection was lost, None where it was killed."""


class Commands:
    """Runs commands in the workers of a container.

    Args:
        pools: makes a pool of workers of a user; None is the container's own.
        restart: kills everything in the container, restarts it, and returns its new supervisor.
        lost: why the supervisor was lost; asks the engine.
        root: user that may kill all processes, where programs may gain privileges; None where it
            is the container's own. False where they may not gain any.
    """

    def __init__(
        self,
        id: str,
        supervisor: Supervisor,
        *,
        pools: Callable[[str | None], WorkerPool],
        restart: Callable[[], Awaitable[Supervisor]],
        lost: Callable[[], Awaitable[SandboxError]],
        root: str | Literal[False] | None = False,
    ) -> None:
        self._id = id
        self._supervisor = supervisor
        self._make_pool = pools
        self._restart = restart
        self._lost = lost
        self._root = root
        self._pools: dict[str | None, WorkerPool] = {}
        self._restarting = asyncio.Lock()
        self._starts = 0
        self._count = 0
        self._running: dict[int, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: SandboxError | None = None
        self._killed_at = -math.inf
        self.closed = False
        self.pool(None).grow()

    def pool(self, user: str | None) -> WorkerPool:
        """The workers of a user."""
        if user not in self._pools:
            self._pools[user] = self._make_pool(user)
        return self._pools[user]

    async def start(
        self,
        user: str | None,
        text: Text,
        limit: int,
        *,
        keep: bool,
        ends_s: float | None = 0.0,
    ) -> Running:
        """Give a command to a worker, which has begun it when this returns.

        Args:
            limit: bytes of stdout and of stderr that are kept.
            keep: the worker returns to its pool when the command has ended.
            ends_s: return at its end, where that comes so soon: one wait in place of two.

        Raises:
            NoProcessError: the container has no process left.
            SandboxError: the container has ended, or can't be reached, or the command's process
                can't have its limits.
        """
        for _ in range(_TRIES):
            await self.check_open()
            starts, running = self._starts, None
            try:
                running = await self._ask(user, text, limit, keep)
                await _until_begun(running.job, ends_s)
            except NoProcessError:
                await self._check_alive()
                raise
            except (TimeoutError, SandboxError) as error:
                # What was to be started has not run yet: it can be started again.
                await self._start_again(starts, "its workers do not answer", error)
            except asyncio.CancelledError:
                if running is not None:
                    await asyncio.shield(asyncio.ensure_future(self.end(running)))
                raise
            else:
                if await self._has_begun(running):
                    return running
        raise SandboxDamagedError(f"something in sandbox {self._id} stops its workers")

    async def _has_begun(self, running: Running) -> bool:
        """False where its worker was killed before it could begin. Raises as `start`."""
        if running.job.begun.result() or running.worker.gone.done():
            return running.job.begun.result()
        await self._check_alive()
        said = b"".join(capture.value() for capture in running.job.output.values())
        if not said:
            raise NoProcessError("the container has as many processes as it may")
        # A process was there, but could not put the limits on itself.
        raise SandboxError(f"a command could not be started: {said.decode(errors='replace')}")

    async def _ask(self, user: str | None, text: Text, limit: int, keep: bool) -> Running:
        pool = self.pool(user)
        found = await pool.acquire()
        self._count += 1
        number, job = self._count, found.expect(limit)
        running = self._running[number] = Running(number, pool, found, job, self._starts)

        def ended(_: object) -> None:
            del self._running[number]
            if found.gone.done() and not self.closed:
                self._background(self._end_lost(running))
            elif keep:
                self._settle(running)
            else:
                found.close()

        job.ended.add_done_callback(ended)
        found.send(text(number, job.mark))
        return running

    async def _end_lost(self, running: Running) -> None:
        """End a command whose exit code is lost with its worker."""
        why: str | None = f"the connection to a command was lost: {running.worker.gone.result()}"
        try:
            # At first, so that a worker that is only cut off ends too, and its exit code is known.
            await self.end(running)
            if await running.worker.was_killed():
                why = None
        finally:
            running.lost.set_result(why)

    def _settle(self, running: Running) -> None:
        """Return a worker to its pool: at once where its command can have left nothing."""
        if running.job.processes <= running.worker.seen:
            running.pool.release(running.worker)
        else:
            self._background(self._release_later(running))

    async def _release_later(self, running: Running) -> None:
        """Wait for the end of all that has the worker's stdout and stderr.

        What these have printed after the command's end may still be on its way here.
        """
        pause = _LOOK_S
        while not running.worker.gone.done() and await self.holds(running):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)
        await running.worker.flush()
        running.pool.release(running.worker)

    async def holds(self, running: Running, holder: bytes = b"") -> bool:
        """Does anything of a command live, with the output of a process `holder` open?"""
        question = script.has(running.number, holder)
        if holder and running.pool is not self.pool(None):
            found, _ = await _asked_of(running.pool, question)
        else:
            found, _ = await self._supervisor.ask(question)
        return bool(found)

    async def outcome(self, running: Running, timeout_s: float | None) -> tuple[int, bool]:
        """Wait for a command's end; kill it on cancellation, or that long after it was asked for.

        Returns:
            Its exit code, and whether the time limit has ended it.

        Raises:
            SandboxError: the sandbox was closed, its container has ended, or the connection to
                the engine was lost.
        """
        ended = running.job.ended
        if not ended.done():
            spent = asyncio.get_running_loop().time() - running.at
            left = None if timeout_s is None else max(0.0, timeout_s - spent)
            try:
                await asyncio.wait([ended], timeout=left)
            except asyncio.CancelledError:
                await asyncio.shield(asyncio.ensure_future(self.end(running)))
                raise
        timed_out = not ended.done()
        if timed_out:
            await self.end(running)
        code = ended.result()
        if code is not None and not timed_out:
            self.note(code)
        await self.check_open()
        if code is None and not timed_out:
            lost = await running.lost
            await self.check_open()
            if lost is not None:
                raise SandboxError(lost)
        return KILLED if code is None else code, timed_out

    def note(self, code: int) -> None:
        """Note how a command ended that was not ended from here."""
        if code == KILLED:
            self._killed_at = asyncio.get_running_loop().time()

    def _judged(self, lost: SandboxError) -> SandboxError:
        """The same, but for a container that ended just after one of its commands was killed.

        The kernel does that where memory is short: first a command, then what else there is.
        Somebody who ends the container kills all at once, and nothing inside can kill process 1.
        """
        spent = asyncio.get_running_loop().time() - self._killed_at
        if isinstance(lost, SandboxLostError) and spent < _KILLED_BEFORE_S:
            return SandboxDamagedError(f"{lost}, after a command was killed: out of memory")
        return lost

    async def threads(self) -> int:
        """How many threads the container has, as a limit of processes counts them."""
        return (await self._supervisor.ask(script.COUNT))[0]

    async def running(self) -> int:
        """How many processes there are that commands have started, or are."""
        return (await self._supervisor.ask(script.RUNNING))[0]

    async def check_open(self) -> None:
        """Raise where the sandbox was closed while a command ran, or its container is no more."""
        if self.closed:
            raise SandboxError(f"sandbox {self._id} was closed while the command ran")
        if self._broken is None and self._supervisor.gone.done() and not self._restarting.locked():
            self._broken = self._judged(await self._lost())
        if self._broken is not None:
            raise type(self._broken)(str(self._broken))  # each with a traceback of its own

    async def _check_alive(self) -> None:
        """Raise where the container has ended, though its supervisor's stream may be the last to
        tell."""
        with contextlib.suppress(SandboxError, TimeoutError):
            await self._supervisor.ask(script.ANSWER)
        await self.check_open()

    def _background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # The next call on the sandbox runs into the same error and raises it.
            _LOG.debug("sandbox %s: %s", self._id, task.exception())

    async def end(self, running: Running) -> None:
        """Kill a command with its descendants, and wait for its end.

        Where something inside prevents that, the container is restarted.
        """
        try:
            async with asyncio.timeout(worker.ANSWER_S):
                await asyncio.shield(running.job.begun)
                await self._kill(script.kill(running.number), self._users(running.pool))
                await asyncio.shield(running.job.ended)
        except (TimeoutError, SandboxError) as error:
            if not self.closed:
                await self._start_again(running.starts, "a command would not end", error)

    def _users(self, *pools: WorkerPool) -> list[WorkerPool]:
        """Those whose processes the supervisor may not kill: all, where the root may."""
        if self._root is False:
            return [pool for pool in pools if pool is not self.pool(None)]
        return [] if self._root is None else [self.pool(self._root)]

    async def _kill(self, how: bytes, others: list[WorkerPool]) -> int:
        """Kill by the supervisor, and by workers of other users; returns its first number."""
        answers = [await self._supervisor.ask(how)]
        for pool in others:
            answers.append(await _asked_of(pool, how))
        left = sum(left for _, left in answers)
        if left:
            raise SandboxError(f"{left} processes in sandbox {self._id} would not end")
        return answers[0][0]

    async def end_all(self) -> int:
        """Kill every process but process 1 and the supervisor; returns how many commands had."""
        starts, running = self._starts, list(self._running.values())
        try:
            async with asyncio.timeout(worker.ANSWER_S):
                for command in running:
                    await asyncio.shield(command.job.begun)
                pools = list(self._pools.values())
                count = await self._kill(script.KILL_ALL, self._users(*pools))
                for pool in pools:
                    pool.drop()  # they were killed too, which may be seen later
                for command in running:
                    await asyncio.shield(command.job.ended)
        except (TimeoutError, SandboxError) as error:
            await self._start_again(starts, "its processes would not end", error)
            return len(running)
        return count

    async def _start_again(self, starts: int, why: str, cause: Exception) -> None:
        """Restart the container, once for all concurrent callers.

        Raises:
            SandboxError: it has ended by itself, or was started again too often.
        """
        # Else the supervisor has been given enough time.
        if isinstance(cause, SandboxError) and not isinstance(cause, TimeoutError):
            await self._check_alive()
        else:
            await self.check_open()
        async with self._restarting:
            if starts != self._starts:
                return
            for pool in self._pools.values():
                pool.close(f"sandbox {self._id} was started again")
            self._pools = {}
            if self._starts == _MOST_STARTS:
                self._broken = SandboxDamagedError(
                    f"sandbox {self._id} was started again {_MOST_STARTS} times, because something "
                    f"inside stops what ends its commands ({why})"
                )
                raise self._broken from cause
            try:
                self._supervisor = await self._restart()
            except SandboxError as error:
                self._broken = error
                raise
            _LOG.warning("sandbox %s was started again: %s (%s)", self._id, why, cause)
            self._starts += 1

    def close(self) -> None:
        """Close all streams: the container ends."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        for pool in self._pools.values():
            pool.close(f"sandbox {self._id} is closed")
        self._supervisor.close()


async def _until_begun(job: Job, ends_s: float | None) -> None:
    """Return at its end, where that comes within `ends_s`, else when it has begun."""
    if ends_s != 0.0:
        longest = worker.ANSWER_S if ends_s is None else min(ends_s, worker.ANSWER_S)
        await asyncio.wait([job.ended], timeout=longest)
    if not job.begun.done():
        # Not by `wait_for`, which in Python 3.11 may lose a cancellation.
        async with asyncio.timeout(worker.ANSWER_S):
            await asyncio.shield(job.begun)


async def _asked_of(pool: WorkerPool, question: bytes) -> Numbers:
    """Ask a worker of a pool what the supervisor is asked else."""
    for _ in range(_TRIES):
        found = await pool.acquire()
        job = found.expect(1000)
        found.send(question + b"end %b 0\n" % job.mark)
        if await job.ended is not None:
            pool.release(found)
            _, first, second = job.output[STDOUT].value().split()
            return int(first), int(second)
        # Else it was killed, perhaps by what was asked before.
    raise SandboxError("something inside kills whatever would kill it")
