"""Run the missing runs of a grid, each in its own process."""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field, frozen

from ale.errors import AleError
from ale.runs import CANCELLING, FINISHING, TERMINATED, RunReader, without_overrides
from ale.text import counted, seconds
from ale_ablate.branching import branch
from ale_ablate.forecast import by_first_steps, seconds_left, timings, whole_seconds
from ale_ablate.grid import Grid, Slot
from ale_ablate.measuring import is_completed

_CHILD = Path(__file__).with_name("child.py")
_TAIL = 4000
"""Bytes at the end of a log that are searched for the reason of a failure."""
_LOOK_AGAIN_S = 1.0
_STOPPED = 3
"""Exit status of a run that is not completed although it has written how it ended."""


@frozen(kw_only=True)
class Failed:
    """A run that ended without completing."""

    slot: Slot
    code: int
    reason: str
    """Why it stopped itself, or the last line of its output."""


@define(kw_only=True)
class Runner:
    """Runs a grid's missing runs, `jobs` at a time. The others continue when one fails."""

    grid: Grid
    jobs: int
    concurrency: int | None
    """Concurrent episodes of one run; None: from its config."""
    report: Callable[[str], None]
    """Prints a line for the user."""
    failed: list[Failed] = field(factory=list, init=False)
    ended_by: signal.Signals | None = field(default=None, init=False)
    """The signal that ended it early."""
    _queue: deque[Slot] = field(factory=deque, init=False)
    _running: dict[int, asyncio.subprocess.Process] = field(factory=dict, init=False)
    _open: set[tuple[int, int]] = field(factory=set, init=False)
    """Cell and seed of what is queued or running."""
    _turn: asyncio.Condition = field(factory=asyncio.Condition, init=False)
    _total: int = field(default=0, init=False)
    _timings: dict[int, float] = field(factory=dict, init=False)
    """Seconds of a run, by the number of its cell."""
    _interrupts: int = field(default=0, init=False)

    async def go(self) -> None:
        """Run what is missing; `failed` and `ended_by` hold the outcome."""
        slots = list(self.grid.slots())
        self._total = len(slots)
        clear = [slot for slot in slots if not slot.unclear()]
        self._queue.extend(slot for slot in clear if not is_completed(slot))
        self._open = {(slot.number, slot.seed) for slot in self._queue}
        if done := len(clear) - len(self._queue):
            self.report(f"{done} of {counted(self._total, 'run')} already completed")
        self._timings = timings(slots)
        self._report_left("about {} in all, as the completed runs took", self._queue)
        with self._listening():
            forecast = asyncio.create_task(self._forecast())
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.jobs, len(self._queue))):
                    group.create_task(self._work())
            forecast.cancel()
            with suppress(asyncio.CancelledError):
                await forecast

    async def _forecast(self) -> None:
        """Say once how long the grid will take, by the first steps of its first run."""
        missing = list(self._queue)
        while not self._timings:
            await asyncio.sleep(_LOOK_AGAIN_S)
            for slot in missing:
                found = await asyncio.to_thread(by_first_steps, slot)
                if found is not None and not self._timings:
                    seconds_each, n = found
                    self._report_left(
                        f"about {{}} in all, by the first {counted(n, 'step')} of {slot.title}",
                        missing,
                        {slot.number: seconds_each},
                    )
                    return

    def _report_left(
        self, text: str, missing: Sequence[Slot], known: Mapping[int, float] | None = None
    ) -> None:
        left = seconds_left(missing, known or self._timings, self.jobs)
        if left is not None and missing:
            self.report(text.replace("{}", seconds(left)))  # the title of a cell may have braces

    async def _work(self) -> None:
        while True:
            async with self._turn:
                await self._turn.wait_for(lambda: self._idle() or self._ready() is not None)
                slot = self._ready()
                if self._idle() or slot is None:
                    return
                self._queue.remove(slot)
            try:
                await self._run(slot)
            finally:
                async with self._turn:
                    self._open.discard((slot.number, slot.seed))
                    self._turn.notify_all()

    def _idle(self) -> bool:
        return not self._queue or self.ended_by is not None

    def _ready(self) -> Slot | None:
        """The next one whose origin, if it has one, has ended."""
        return next((slot for slot in self._queue if not self._waits(slot)), None)

    def _waits(self, slot: Slot) -> bool:
        origin = slot.origin
        return origin is not None and (origin.number, origin.seed) in self._open

    async def _run(self, slot: Slot) -> None:
        started, log_size = time.monotonic(), _size(slot.log)
        place = f"[{self._total - len(self._queue)}/{self._total}]"
        resumed = slot.run() is not None
        again = " (resumed)" if resumed else ""
        slot.folder.mkdir(parents=True, exist_ok=True)
        if slot.origin is not None and not resumed:
            try:
                again = await asyncio.to_thread(_branched, slot, slot.origin)
            except AleError as error:
                self._fail(slot, 1, str(error).splitlines()[0], place)
                return
        self.report(f"{place} {slot.title}{again}")
        with slot.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(slot),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # The cell's file has their values, but for those that the cell itself overrides.
                env=without_overrides(os.environ),
                # A Ctrl-C reaches this process alone, which forwards it once.
                process_group=0,
            )
        self._running[process.pid] = process
        if self.ended_by is not None:  # the signal came while the process was being started
            process.send_signal(self.ended_by)
        code = await process.wait()
        del self._running[process.pid]
        spent = time.monotonic() - started
        if is_completed(slot):
            self._learn(slot.number, whole_seconds(slot, spent, resumed=resumed))
        self._report_end(slot, code, place, spent, log_size)

    def _missing(self) -> list[Slot]:
        """Queued and running; the running ones as if they had just begun."""
        return [slot for slot in self.grid.slots() if (slot.number, slot.seed) in self._open]

    def _command(self, slot: Slot) -> list[str]:
        path = slot.run()
        number = [] if self.concurrency is None else ["-n", str(self.concurrency)]
        if path is not None:
            arguments = ["run", "--resume", str(path), *number]
        else:
            where = str(slot.folder).replace("'", "''")
            overrides = {
                "run.seed": str(slot.seed),
                "run.name": f"'{slot.name}'",
                "run.directory": f"'{where}'",
            }
            sets = [
                part for key, value in overrides.items() for part in ("--set", f"{key}={value}")
            ]
            arguments = ["run", str(self.grid.config(slot.cell)), *sets, *number]
        # -I -S: the script needs no packages and starts faster without them.
        wrapper = [sys.executable, "-I", "-S", str(_CHILD), str(os.getpid()), sys.executable]
        return [*wrapper, *arguments]

    def _learn(self, number: int, took: float | None) -> None:
        if took is not None:
            self._timings[number] = (self._timings.get(number, took) + took) / 2

    def _report_end(self, slot: Slot, code: int, place: str, spent: float, log_size: int) -> None:
        if is_completed(slot):
            broken = "; some episodes broke" if code == 3 else ""
            self.report(f"{place} {slot.title}: completed after {seconds(spent)}{broken}")
            left = [each for each in self._missing() if each != slot]
            self._report_left("    about {} left", left)
        elif self.ended_by is not None:
            self.report(f"{place} {slot.title}: interrupted after {seconds(spent)}")
        else:
            reason = _cause(slot) if code == _STOPPED else None
            self._fail(slot, code, reason or _last_line(slot.log, log_size) or "no output", place)
            self.report(f"    full output: {os.path.relpath(slot.log)}")

    def _fail(self, slot: Slot, code: int, reason: str, place: str) -> None:
        self.failed.append(Failed(slot=slot, code=code, reason=reason))
        self.report(f"{place} {slot.title}: FAILED, {_status(code)}: {reason}")

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Forward Ctrl-C and SIGTERM to the runs."""
        loop = asyncio.get_running_loop()
        numbers = {signal.SIGINT: self._on_interrupt, signal.SIGTERM: self._on_terminate}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # as it is not under nohup
            numbers[signal.SIGHUP] = self._on_terminate
        for number, handler in numbers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            # The outcome is printed next; another Ctrl-C must not prevent it.
            ignored = self.ended_by is not None
            for number in numbers:
                loop.remove_signal_handler(number)
                if ignored:
                    signal.signal(number, signal.SIG_IGN)

    def _on_interrupt(self) -> None:
        self._interrupts += 1
        if self.ended_by is None:
            self.ended_by = signal.SIGINT
            self._forward(signal.SIGINT)
            self.report(f"\n{FINISHING}")
            return
        # The kernel may merge two equal pending signals into one.
        self._forward(signal.SIGTERM)
        if self._interrupts == 2:
            self.report(f"\n{CANCELLING}")

    def _on_terminate(self) -> None:
        self.ended_by = signal.SIGTERM
        self._forward(signal.SIGTERM)
        self.report(f"\n{TERMINATED}")

    def _forward(self, number: signal.Signals) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)


def _branched(slot: Slot, origin: Slot) -> str:
    """Make a run's directory from that of its origin; returns a remark about it.

    Raises:
        AleError: there is nothing to branch from.
    """
    path = origin.run()
    if path is None or not is_completed(origin):
        raise AleError(f"not started: it begins where {origin.title} learned from demonstrations")
    return f" (from step {branch(slot, path)} of {origin.cell.name})"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cause(slot: Slot) -> str | None:
    """Why a run that has ended stopped itself; None where it did not."""
    path = slot.run()
    ends = [] if path is None else [event.get("cause") for event in RunReader(path).events()]
    return f"the first episodes all broke: {ends[-1]}" if ends and ends[-1] else None


def _last_line(log: Path, since: int) -> str:
    with log.open("rb") as file:
        file.seek(max(since, _size(log) - _TAIL))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _status(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"killed by signal {-code}"
