"""The processes of a launch, watched: restarts, signals and their end."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from attrs import define

from ale.errors import LaunchError, LostProcessError
from ale.protocols import LOST, Launch, Process
from ale_processes.supervised.child import Ended, Running

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class Part(Protocol):
    """One process of a launch, with what its launcher needs to start it."""

    @property
    def process(self) -> Process:
        """Of which it is one."""
        ...

    @property
    def name(self) -> str:
        """That of its log."""
        ...


P = TypeVar("P", bound=Part)


@define(eq=False, slots=False)
class Supervised(Generic[P]):
    """The processes of a launch; none is started yet."""

    _launch: Launch
    _start: Callable[[P], Awaitable[Running]]
    """Starts one; cancelled, it leaves nothing behind. Raises `OSError` or `LaunchError`."""
    _grace_s: float
    """Seconds from SIGTERM to SIGKILL."""
    _say: Callable[[str], None]
    _status: Callable[[int], int] = lambda code: code
    """The run's exit status by that of its process."""

    def __attrs_post_init__(self) -> None:
        self._starting: dict[str, asyncio.Task[Running]] = {}
        self._running: dict[str, Running] = {}
        self._tasks: list[asyncio.Task[int]] = []
        self._signalled = self._lost = self._ending = False
        self._signal = signal.SIGTERM

    def start(self, parts: Sequence[P]) -> None:
        """Start every process, the run last, which is the first part."""
        run, *others = parts
        self._tasks = [asyncio.create_task(self._keep(part)) for part in (*others, run)]

    async def wait(self) -> int:
        """Wait for the run, then end the others.

        Raises:
            LaunchError: one of them can't be started.
        """
        run, left = self._tasks[-1], set(self._tasks)
        try:
            while not run.done():
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()  # raises what has kept it from being watched
        finally:
            await self.end()
        return LOST if self._lost else run.result()

    async def send_signal(self, number: signal.Signals) -> None:
        """Pass a signal to the run."""
        self._signalled, self._signal = True, number
        name = self._launch.run.name
        if name in self._running:
            await self._running[name].send(number)
        elif name in self._starting:
            self._starting[name].cancel()

    async def _end_run(self) -> None:
        """End the run as a user would, whose Ctrl-C it has time to answer."""
        await self.send_signal(signal.SIGTERM)
        run = self._running.get(self._launch.run.name)
        if run is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(run.wait(), self._grace_s)
                return
            await run.end(self._grace_s)

    async def end(self) -> None:
        """End every process."""
        self._ending = True
        for starting in self._starting.values():
            starting.cancel()
        await asyncio.gather(*(each.end(self._grace_s) for each in list(self._running.values())))
        await asyncio.gather(*self._tasks, return_exceptions=True)  # `wait` has raised them

    async def _keep(self, part: P) -> int:
        """Run a process until it ends for good; the run's exit status for the run."""
        is_run, starts = part.process.role == "run", 0
        while not self._ending:
            ended = await self._once(part)
            starts += 1
            if self._ending or not self._is_lost(ended, is_run):
                return self._status(ended.status) if is_run else ended.status
            if starts > self._launch.restarts:
                self._say(f"{part.name} {ended}: the run is ended; see its log {part.name}.log")
                self._lost = True
                await self._end_run()
                return LOST
            self._say(f"{part.name} {ended}: started again ({starts} of {self._launch.restarts})")
            pause = min(_FIRST_PAUSE_S * 2 ** (starts - 1), _LONGEST_PAUSE_S)
            await self._pause(pause, is_run)
            if is_run and self._signalled:
                return self._status(ended.status)
        return LOST

    def _is_lost(self, ended: Ended, is_run: bool) -> bool:
        if is_run:
            killed = ended.code < 0 or ended.code == LostProcessError.exit_status
            return killed and not self._signalled
        return ended.code != 0

    def _is_over(self, is_run: bool) -> bool:
        return self._ending or (is_run and self._signalled)

    async def _pause(self, seconds: float, is_run: bool) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._is_over(is_run) and loop.time() < until:  # noqa: ASYNC110 - also ends early
            await asyncio.sleep(0.05)

    async def _once(self, part: P) -> Ended:
        running = await self._started(part)
        if running is None:
            return Ended(-self._signal)
        self._running[part.name] = running
        if self._ending:
            await running.end(self._grace_s)
        elif self._signalled and part.process.role == "run":  # before it could be sent
            await running.send(self._signal)
        try:
            return await running.wait()
        finally:
            del self._running[part.name]

    async def _started(self, part: P) -> Running | None:
        """Start a process; None where it was given up, by a signal or at the end."""
        starting = asyncio.ensure_future(self._start(part))
        self._starting[part.name] = starting
        try:
            return await starting
        except asyncio.CancelledError:
            if self._is_over(part.process.role == "run"):
                return None
            raise
        except OSError as error:
            raise LaunchError(f"{part.name} can't be started: {error}") from error
        finally:
            del self._starting[part.name]
