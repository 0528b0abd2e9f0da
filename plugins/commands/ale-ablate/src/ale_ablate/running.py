"""Run what is missing of a grid: each run a process of its own."""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

from ale.text import seconds
from ale_ablate.grid import Grid, Slot
from ale_ablate.measuring import is_completed

_CHILD = Path(__file__).with_name("child.py")
_TAIL = 4000
"""Characters at the end of a log in which the reason of a failure is looked for."""


@frozen(kw_only=True)
class Failed:
    """A run that ended without having done its work."""

    slot: Slot
    code: int
    reason: str
    """The last line that it said."""


@define(kw_only=True)
class Runner:
    """Runs a grid's missing runs, some at a time. A run that fails does not keep others back."""

    grid: Grid
    jobs: int
    concurrency: int | None
    """Episodes of one run at once; None: as its config says."""
    say: Callable[[str], None]
    failed: list[Failed] = field(factory=list, init=False)
    ended_by: signal.Signals | None = field(default=None, init=False)
    """What ended it early."""
    _queue: deque[Slot] = field(factory=deque, init=False)
    _running: dict[int, asyncio.subprocess.Process] = field(factory=dict, init=False)
    _total: int = field(default=0, init=False)
    _interrupts: int = field(default=0, init=False)

    async def go(self) -> None:
        """Do exactly what is missing. What failed, and what interrupted it, is in the fields."""
        slots = list(self.grid.slots())
        self._total = len(slots)
        self._queue.extend(slot for slot in slots if not is_completed(slot))
        if len(self._queue) < self._total:
            done = self._total - len(self._queue)
            self.say(f"{done} of {self._total} runs are there already")
        with self._listening():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.jobs, len(self._queue))):
                    group.create_task(self._work())

    async def _work(self) -> None:
        while self._queue and self.ended_by is None:
            await self._run(self._queue.popleft())

    async def _run(self, slot: Slot) -> None:
        started, said_before = time.monotonic(), _size(slot.log)
        place = f"[{self._total - len(self._queue)}/{self._total}]"
        again = " goes on" if slot.run() is not None else ""
        self.say(f"{place} {slot.title}{again}")
        slot.folder.mkdir(parents=True, exist_ok=True)
        with slot.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(slot),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C reaches this process alone, which hands it on, once.
                process_group=0,
            )
        self._running[process.pid] = process
        if self.ended_by is not None:  # it came while the process was being made
            process.send_signal(self.ended_by)
        code = await process.wait()
        del self._running[process.pid]
        self._tell(slot, code, place, time.monotonic() - started, said_before)

    def _command(self, slot: Slot) -> list[str]:
        path = slot.run()
        number = [] if self.concurrency is None else ["-n", str(self.concurrency)]
        if path is not None:
            arguments = ["run", "--resume", str(path), *number]
        else:
            name = f"{self.grid.name}-{slot.number:02d}-seed{slot.seed}"
            where = str(slot.folder).replace("'", "''")
            laid = {
                "run.seed": str(slot.seed),
                "run.name": f"'{name}'",
                "run.directory": f"'{where}'",
            }
            sets = [part for key, value in laid.items() for part in ("--set", f"{key}={value}")]
            arguments = ["run", str(self.grid.config(slot.cell)), *sets, *number]
        # -I -S: what stands there needs no packages, and becomes the command at once.
        begin = [sys.executable, "-I", "-S", str(_CHILD), str(os.getpid()), sys.executable]
        return [*begin, *arguments]

    def _tell(self, slot: Slot, code: int, place: str, spent: float, said_before: int) -> None:
        if is_completed(slot):
            broken = "; some episodes broke" if code == 3 else ""
            self.say(f"{place} {slot.title}: completed after {seconds(spent)}{broken}")
        elif self.ended_by is not None:
            self.say(f"{place} {slot.title}: interrupted after {seconds(spent)}")
        else:
            reason = _last_line(slot.log, said_before) or "it said nothing"
            self.failed.append(Failed(slot=slot, code=code, reason=reason))
            self.say(f"{place} {slot.title}: FAILED, {_status(code)}: {reason}")
            self.say(f"    all that it said: {os.path.relpath(slot.log)}")

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Take Ctrl-C and SIGTERM, and hand them on to what runs."""
        loop = asyncio.get_running_loop()
        numbers = {signal.SIGINT: self._on_interrupt, signal.SIGTERM: self._on_terminate}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # as it is not under nohup
            numbers[signal.SIGHUP] = self._on_terminate
        for number, handler in numbers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            # What follows is to say how it ended: one Ctrl-C more must not take that away.
            ignored = self.ended_by is not None
            for number in numbers:
                loop.remove_signal_handler(number)
                if ignored:
                    signal.signal(number, signal.SIG_IGN)

    def _on_interrupt(self) -> None:
        self._interrupts += 1
        if self.ended_by is None:
            self.ended_by = signal.SIGINT
            self._hand_on(signal.SIGINT)
            self.say("\nFinishing the episodes that are running; Ctrl-C again to cancel them.")
            return
        # Two equal signals on each other's heels are one to the kernel.
        self._hand_on(signal.SIGTERM)
        if self._interrupts == 2:
            self.say("\nCancelling: what is running is thrown away and cleaned up.")

    def _on_terminate(self) -> None:
        self.ended_by = signal.SIGTERM
        self._hand_on(signal.SIGTERM)
        self.say("Terminated: what is running is thrown away and cleaned up.")

    def _hand_on(self, number: signal.Signals) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _last_line(log: Path, since: int) -> str:
    with log.open("rb") as file:
        file.seek(max(since, _size(log) - _TAIL))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _status(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"killed by signal {-code}"
