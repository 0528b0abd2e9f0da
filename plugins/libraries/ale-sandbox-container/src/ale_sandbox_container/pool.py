"""The worker shells of one user in one container; more are started when all are in use."""

import asyncio
from collections.abc import Awaitable, Callable

from ale.errors import SandboxError
from ale_sandbox_container import script
from ale_sandbox_container.pipes import PipeFolder, new_name
from ale_sandbox_container.worker import Handshake, Job, Worker

_MORE = 4
_RESTART_S = 2.0
ANSWER_S = 20.0
"""Far above what a supervisor takes to answer, on a machine with far too much to do."""


class NoProcessError(SandboxError):
    """The container has as many processes as it may."""


class WorkerPool:
    """A pool of worker shells.

    One idle worker shell is held in reserve: it starts more of them, and kills commands that run
    too long, without a call to the engine. (A program inside can stop what the engine starts in
    its container, and so hang the engine.)

    Args:
        shell: path of the shell in the container.
        inject: starts a process in the container through the engine, which is slow; used where no
            worker shell is idle. Takes the script and the value of its ``ALE_KEY``.
        key: prefix of the pipe names of the worker shells that process 1 starts; None: none.
    """

    def __init__(
        self,
        pipes: PipeFolder,
        *,
        shell: str,
        inject: Callable[[str, str], Awaitable[None]],
        key: str | None = None,
    ) -> None:
        self._pipes = pipes
        self._shell = shell
        self._inject = inject
        self._key = key
        self._generation = 0
        self._made: set[Worker] = set()
        self._idle: list[Worker] = []
        self._lent_briefly: set[Worker] = set()
        self._next: list[Worker] = []
        self._growing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed: str | None = None
        if key is not None:
            self._prepare()
        self._first = self._next

    def _prepare(self) -> None:
        """Make the pipes of the worker shells that process 1 starts next."""
        self._next = self._make(f"{self._key}.{self._generation}", script.FIRST_WORKERS)
        self._generation += 1

    def _make(self, base: str, count: int) -> list[Worker]:
        made = [Worker(self._pipes, f"{base}.{number}") for number in range(count)]
        for worker in made:
            worker.handshake.add_done_callback(lambda _, worker=worker: self._on_handshake(worker))  # type: ignore[misc]
            worker.gone.add_done_callback(lambda _, worker=worker: self._on_gone(worker))  # type: ignore[misc]
        self._made.update(made)
        return made

    def _on_handshake(self, worker: Worker) -> None:
        if not worker.ready:
            return
        if worker in self._next and self._closed is None:
            # Process 1 has opened this generation's pipes; the names of another must be there
            # before it looks for them.
            self._prepare()
        self.release(worker)

    def _on_gone(self, worker: Worker) -> None:
        self._made.discard(worker)
        self._lent_briefly.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        self._changed.set()

    async def handshake(self, timeout_s: float) -> Handshake | None:
        """The first handshake of all; None on timeout."""
        waits = [worker.handshake for worker in self._first]
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result() if done else None

    async def acquire(self, *, spare: bool = False) -> Worker:
        """An idle worker shell; return it with `release`.

        Args:
            spare: may be the reserve, because it is returned soon.

        Raises:
            SandboxError: closed, or the container has ended.
            TimeoutError: nothing inside answers.
        """
        while True:
            if self._closed is not None:
                raise SandboxError(self._closed)
            if len(self._idle) > (0 if spare else 1):
                worker = self._idle.pop()
                if spare:
                    self._lent_briefly.add(worker)
                return worker
            await self._more()

    def release(self, worker: Worker) -> None:
        """Return a worker shell to the pool."""
        self._lent_briefly.discard(worker)
        if not worker.gone.done() and self._closed is None:
            self._idle.append(worker)
            self._changed.set()

    async def _more(self) -> None:
        """Wait until a worker shell is returned or a new one is ready."""
        self._changed.clear()
        if not self._idle and self._lent_briefly:
            async with asyncio.timeout(ANSWER_S):
                await self._changed.wait()
            return
        if self._growing is None or self._growing.done():
            self._growing = asyncio.ensure_future(self._grow())
            self._growing.add_done_callback(_seen)
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({self._growing, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if self._growing.done() and not self._growing.cancelled():
            self._growing.result()

    async def _grow(self) -> None:
        if self._idle:
            await self._grow_inside(self._idle.pop())
        elif not await self._restarted():
            await self._grow_outside()

    async def _restarted(self) -> bool:
        """True where every worker shell was killed and process 1 has started new ones."""
        if self._key is None or any(worker.ready for worker in self._made):
            return False
        waits = [worker.handshake for worker in self._next]
        done, _ = await asyncio.wait(waits, timeout=_RESTART_S, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    async def _grow_inside(self, parent: Worker) -> None:
        base = new_name()
        made = self._make(base, _MORE)
        job = parent.ask(script.more_workers(self._shell, base, _MORE))
        job.ended.add_done_callback(lambda _: self.release(parent))
        await self._wait_for(made, job)

    async def _grow_outside(self) -> None:
        base = new_name()
        made = self._make(base, _MORE)
        try:
            await self._inject(script.injected(self._shell, _MORE), base)
        except BaseException:
            _dismiss(made)
            raise
        await self._wait_for(made, None)

    async def _wait_for(self, made: list[Worker], parent: Job | None) -> None:
        """Until one of the new worker shells answers, or certainly none will."""
        waits: list[asyncio.Future[Handshake] | asyncio.Future[tuple[int, ...] | None]]
        waits = [worker.handshake for worker in made]
        if parent is not None:
            waits.append(parent.ended)
        done, _ = await asyncio.wait(waits, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
        if any(worker.ready for worker in made):
            return
        # Some may have started before there was no process left.
        _dismiss(made)
        if not done:
            raise TimeoutError
        if parent is not None:
            # Its answer tells whether it could start none, or was killed before it could try.
            async with asyncio.timeout(ANSWER_S):
                if await asyncio.shield(parent.ended) is None:
                    return
        raise NoProcessError("no process could be started in the container: it has too many")

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed is not None

    def close(self, why: str) -> None:
        """Close every worker shell; pending `acquire` calls raise `why`. May be called again."""
        if self._closed is not None:
            return
        self._closed = why
        if self._growing is not None:
            self._growing.cancel()
        for worker in list(self._made):
            worker.close()
        self._changed.set()


def _seen(task: "asyncio.Task[None]") -> None:
    """Mark its exception as retrieved: nobody may be waiting for it any more."""
    if not task.cancelled():
        task.exception()


def _dismiss(workers: list[Worker]) -> None:
    for worker in workers:
        worker.dismiss()
