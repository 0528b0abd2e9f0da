"""The lanes of one user in one container: lent out, and made more where all are in use."""

import asyncio
from collections.abc import Awaitable, Callable

from ale.errors import SandboxError
from ale_sandbox_container import script
from ale_sandbox_container.door import Door, new_name
from ale_sandbox_container.lane import Hello, Job, Lane

_MORE = 4
_RESTART_S = 2.0
ANSWER_S = 20.0
"""Far above what a supervisor takes to answer, on a machine with far too much to do."""


class NoProcessError(SandboxError):
    """The container has as many processes as it may."""


class LanePool:
    """Lends lanes.

    One idle lane is held back: through it more are started, and through it a command that runs
    too long is killed, without asking the engine for anything. (A program inside can stop what
    the engine starts in its container, and so hang the engine.)

    Args:
        shell: what a lane is run with, as the container sees it.
        inject: starts a process in the container through the engine; the slow way to lanes, for
            where there is no idle one. Gets the script and what its ``ALE_KEY`` is to be.
        key: base of the names of the lanes that process 1 starts; None where it starts none.
    """

    def __init__(
        self,
        door: Door,
        *,
        shell: str,
        inject: Callable[[str, str], Awaitable[None]],
        key: str | None = None,
    ) -> None:
        self._door = door
        self._shell = shell
        self._inject = inject
        self._key = key
        self._generation = 0
        self._made: set[Lane] = set()
        self._idle: list[Lane] = []
        self._lent_briefly: set[Lane] = set()
        self._next: list[Lane] = []
        self._growing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed: str | None = None
        if key is not None:
            self._prepare()
        self._first = self._next

    def _prepare(self) -> None:
        """Make the pipes of the lanes that process 1 starts next."""
        self._next = self._make(f"{self._key}.{self._generation}", script.FIRST_LANES)
        self._generation += 1

    def _make(self, base: str, count: int) -> list[Lane]:
        made = [Lane(self._door, f"{base}.{number}") for number in range(count)]
        for lane in made:
            lane.hello.add_done_callback(lambda _, lane=lane: self._on_hello(lane))  # type: ignore[misc]
            lane.gone.add_done_callback(lambda _, lane=lane: self._on_gone(lane))  # type: ignore[misc]
        self._made.update(made)
        return made

    def _on_hello(self, lane: Lane) -> None:
        if not lane.ready:
            return
        if lane in self._next and self._closed is None:
            # Process 1 has opened this generation's pipes; the names of another must be there
            # before it looks for them.
            self._prepare()
        self.release(lane)

    def _on_gone(self, lane: Lane) -> None:
        self._made.discard(lane)
        self._lent_briefly.discard(lane)
        if lane in self._idle:
            self._idle.remove(lane)
        self._changed.set()

    async def hello(self, timeout_s: float) -> Hello | None:
        """What the first lane of all says; None where it has not said anything yet."""
        waits = [lane.hello for lane in self._first]
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result() if done else None

    async def acquire(self, *, spare: bool = False) -> Lane:
        """An idle lane; give it back with `release`.

        Args:
            spare: the one that is held back will do, because it comes back soon.

        Raises:
            SandboxError: closed, or the container has ended.
            TimeoutError: nothing inside answers.
        """
        while True:
            if self._closed is not None:
                raise SandboxError(self._closed)
            if len(self._idle) > (0 if spare else 1):
                lane = self._idle.pop()
                if spare:
                    self._lent_briefly.add(lane)
                return lane
            await self._more()

    def release(self, lane: Lane) -> None:
        """It has nothing more to do."""
        self._lent_briefly.discard(lane)
        if not lane.gone.done() and self._closed is None:
            self._idle.append(lane)
            self._changed.set()

    async def _more(self) -> None:
        """Wait until a lane is given back or more are there."""
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
        """Something has killed every lane, and process 1 has started new ones."""
        if self._key is None or any(lane.ready for lane in self._made):
            return False
        waits = [lane.hello for lane in self._next]
        done, _ = await asyncio.wait(waits, timeout=_RESTART_S, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    async def _grow_inside(self, parent: Lane) -> None:
        base = new_name()
        made = self._make(base, _MORE)
        job = parent.ask(script.more_lanes(self._shell, base, _MORE))
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

    async def _wait_for(self, made: list[Lane], parent: Job | None) -> None:
        """Until one of the new lanes answers, or it is known that none will."""
        waits: list[asyncio.Future[Hello] | asyncio.Future[tuple[int, ...] | None]]
        waits = [lane.hello for lane in made]
        if parent is not None:
            waits.append(parent.ended)
        done, _ = await asyncio.wait(waits, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
        if any(lane.ready for lane in made):
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
        """No lane will be lent any more."""
        return self._closed is not None

    def close(self, why: str) -> None:
        """Let go of every lane; who still waits for one gets `why`. May be called again."""
        if self._closed is not None:
            return
        self._closed = why
        if self._growing is not None:
            self._growing.cancel()
        for lane in list(self._made):
            lane.close()
        self._changed.set()


def _seen(task: "asyncio.Task[None]") -> None:
    """Its failure is told to who waits for it; nobody may be left to."""
    if not task.cancelled():
        task.exception()


def _dismiss(lanes: list[Lane]) -> None:
    for lane in lanes:
        lane.dismiss()
