"""Subprocesses that are watched: logs, restarts, and their end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from ale.protocols import LOST, Launch
from ale_launch.slots import Slot

_BECOME = Path(__file__).with_name("become.py")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


@frozen
class Ended:
    """How a process ended."""

    code: int
    """Negative: the number of the signal that killed it."""

    @property
    def status(self) -> int:
        """As of a shell: 128 + n for the signal n."""
        return self.code if self.code >= 0 else 128 - self.code

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with status {self.code}"
        return f"was killed by {signal.Signals(-self.code).name}"


class Supervised:
    """The processes of a launch on this machine."""

    def __init__(
        self,
        launch: Launch,
        grace_s: float,
        say: Callable[[str], None],
        status: Callable[[int], int] = lambda code: code,
        target: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Nothing is started yet.

        Args:
            grace_s: seconds from SIGTERM to SIGKILL.
            status: the run's exit status by that of its process.
            target: id of the process that signals for the run go to; None: its process.
        """
        self._launch = launch
        self._grace_s = grace_s
        self._say = say
        self._status = status
        self._target = target
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[int]] = []
        self._signalled = self._lost = self._ending = False
        self._signal = signal.SIGTERM

    def start(self, slots: Sequence[Slot]) -> None:
        """Start every process, the run last, which is the first slot."""
        self._launch.log("run").parent.mkdir(parents=True, exist_ok=True)
        run, *others = slots
        self._tasks = [asyncio.create_task(self._keep(slot)) for slot in (*others, run)]

    async def wait(self) -> int:
        """Wait for the run, then end the others."""
        try:
            status = await self._tasks[-1]
        finally:
            await self.end()
        return LOST if self._lost else status

    async def send_signal(self, number: signal.Signals) -> None:
        """Pass a signal to the run."""
        self._signalled, self._signal = True, number
        process = self._running.get(self._launch.run.name)
        if process is not None:
            self._send(process, number)

    def _send(self, run: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._target() or run.pid, number)

    async def _end_run(self) -> None:
        """End the run as a user would, whose Ctrl-C it has time to answer."""
        process = self._running.get(self._launch.run.name)
        if process is not None:
            self._send(process, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self._grace_s)
                return
            await self._end(process)

    async def end(self) -> None:
        """SIGTERM, then SIGKILL for the whole group of each process."""
        self._ending = True
        await asyncio.gather(*(self._end(process) for process in list(self._running.values())))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), self._grace_s)
        _kill_group(process.pid)
        await process.wait()

    async def _keep(self, slot: Slot) -> int:
        """Run a process until it ends for good; the run's exit status for the run."""
        is_run, starts = slot.process.role == "run", 0
        while not self._ending:
            ended = await self._once(slot)
            starts += 1
            if self._ending or not self._is_lost(ended, is_run):
                return self._status(ended.status) if is_run else ended.status
            if starts > self._launch.restarts:
                self._say(f"{slot.name} {ended}: the run is ended; see its log {slot.name}.log")
                self._lost = self._signalled = True
                await self._end_run()
                return LOST
            self._say(f"{slot.name} {ended}: started again ({starts} of {self._launch.restarts})")
            pause = min(_FIRST_PAUSE_S * 2 ** (starts - 1), _LONGEST_PAUSE_S)
            await self._pause(pause, is_run)
            if is_run and self._signalled:
                return self._status(ended.status)
        return LOST

    def _is_lost(self, ended: Ended, is_run: bool) -> bool:
        if is_run:
            return ended.code < 0 and not self._signalled
        return ended.code != 0

    def _is_over(self, is_run: bool) -> bool:
        return self._ending or (is_run and self._signalled)

    async def _pause(self, seconds: float, is_run: bool) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._is_over(is_run) and loop.time() < until:  # noqa: ASYNC110 - also ends early
            await asyncio.sleep(0.05)

    async def _once(self, slot: Slot) -> Ended:
        cores = ",".join(map(str, slot.cores)) or "-"
        become = (sys.executable, "-I", str(_BECOME), str(os.getpid()), cores)
        with self._launch.log(slot.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *become,
                *slot.process.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **slot.environ(self._launch)},
                start_new_session=True,  # Ctrl-C of the terminal reaches the launcher alone
            )
        self._running[slot.name] = process
        if self._ending:
            await self._end(process)
        elif self._signalled and slot.process.role == "run":  # before it could be sent
            self._send(process, self._signal)
        try:
            return Ended(await process.wait())
        finally:
            _kill_group(process.pid)
            del self._running[slot.name]


def _kill_group(leader: int) -> None:
    """Kill what a process has left in its session."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
