"""The workers of one user in one container: idle ones are reused, others started."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ale.errors import SandboxDamagedError, SandboxError
from ale_sandboxing.container.worker import ANSWER_S, Worker


class NoProcessError(SandboxDamagedError):
    """No process could be started in a container that runs: it has as many as it may, or what a
    process needs to start is gone from it."""


class WorkerPool:
    """A pool of workers.

    Args:
        start: starts a shell in the container, by a call to the engine that takes 50 ms or more.
        starting: held meanwhile. An engine that pauses a container, as for a copy, while a process
            is started in it hangs for ever.
    """

    def __init__(self, start: Callable[[], Awaitable[Worker]], starting: asyncio.Lock) -> None:
        self._start = start
        self._starting = starting
        self._made: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._growing: set[asyncio.Task[None]] = set()
        self._closed: str | None = None
        self._drops = 0

    async def acquire(self) -> Worker:
        """A worker; return it with `release`.

        Raises:
            NoProcessError: none could be started.
            SandboxError: the pool is closed.
            TimeoutError: the engine, or the shell that it has started, does not answer.
        """
        if self._closed is not None:
            raise SandboxError(self._closed)
        while self._idle:
            worker = self._idle.pop()
            if not worker.gone.done():
                return worker
        waiting: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._background(self._grow())
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self.release(waiting.result())
            raise

    def release(self, worker: Worker) -> None:
        """Return a worker to the pool."""
        if worker.gone.done() or self._closed is not None:
            return
        waiting = self._next()
        if waiting is None:
            self._idle.append(worker)
        else:
            waiting.set_result(worker)

    def _next(self) -> "asyncio.Future[Worker] | None":
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def grow(self) -> None:
        """Start one worker in the background, for whoever comes first."""
        self._background(self._grow(wanted=True))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._growing.add(task)
        task.add_done_callback(self._growing.discard)

    async def _grow(self, *, wanted: bool = False) -> None:
        try:
            async with self._starting:
                if not wanted and all(waiting.done() for waiting in self._waiting):
                    return  # a worker has become free meanwhile
                worker = await self._not_dropped()
        except (SandboxError, TimeoutError) as error:
            waiting = self._next()
            if waiting is not None:
                waiting.set_exception(error)
        else:
            self.release(worker)

    async def _not_dropped(self) -> Worker:
        """A new worker; another one where `drop` has ended it before it answered."""
        while True:
            drops = self._drops
            try:
                return await self._new()
            except NoProcessError:
                if drops == self._drops or self._closed is not None:
                    raise

    async def _new(self) -> Worker:
        async with asyncio.timeout(ANSWER_S):
            worker = await self._start()
            self._made.add(worker)
            worker.gone.add_done_callback(lambda _: self._forget(worker))
            try:
                await worker.flush()
            except BaseException:
                worker.close()
                raise
        if worker.gone.done():
            raise NoProcessError(worker.gone.result())
        return worker

    def _forget(self, worker: Worker) -> None:
        self._made.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)

    def drop(self) -> None:
        """End every worker; new ones are started when they are asked for."""
        self._drops += 1
        for worker in list(self._made):
            worker.close()

    def close(self, why: str) -> None:
        """End every worker; pending `acquire` calls raise `why`. May be called again."""
        if self._closed is not None:
            return
        self._closed = why
        for task in self._growing:
            task.cancel()
        while (waiting := self._next()) is not None:
            waiting.set_exception(SandboxError(why))
        self.drop()
