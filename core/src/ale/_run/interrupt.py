"""Ctrl-C drains the run, a second Ctrl-C cancels it; SIGTERM and SIGHUP cancel it at once."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FINISHING = "Finishing the running episodes; press Ctrl-C again to cancel them."
CANCELLING = "Cancelling: running episodes are discarded and cleaned up."
TERMINATED = "Terminated: running episodes are discarded and cleaned up."


class Interrupt:
    """The state of a run's interruption by signals."""

    def __init__(self, show: Callable[[str], None] = lambda _: None) -> None:
        """Start in the state "not interrupted".

        Args:
            show: shows the user a message about what happens now.
        """
        self.draining = False
        self.cancelled = False
        self.signal: signal.Signals | None = None
        self.on_drain: list[Callable[[], object]] = []
        """Are called when the run begins to drain."""
        self._show = show
        self._target: asyncio.Task[object] | None = None

    @property
    def exit_code(self) -> int | None:
        """128 + n for the signal n that ended the run, or None."""
        return None if self.signal is None else 128 + self.signal

    @contextmanager
    def listening(self, *, drain: bool = False) -> Iterator[None]:
        """Handle SIGINT, SIGTERM and SIGHUP inside the block; they may cancel the current task.

        Args:
            drain: count a SIGTERM like a Ctrl-C.
        """
        self._target = asyncio.current_task()
        if threading.current_thread() is not threading.main_thread():
            try:  # signals are the main thread's, which passes them on if it waits for this one
                yield
            finally:
                self._target = None
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.on_interrupt)
        terminate = self._drain_terminated if drain else self.on_terminate
        loop.add_signal_handler(signal.SIGTERM, terminate)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
            loop.add_signal_handler(signal.SIGHUP, self.on_terminate)
        try:
            yield
        finally:
            self._ignore_interrupts(loop)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            self._target = None

    def _ignore_interrupts(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ignore further Ctrl-Cs if the run was interrupted: how it ended is still to be printed.

        asyncio sets Python's own handler for a moment. To block the signal until then would not do:
        any other thread may take it.
        """
        try:
            loop.remove_signal_handler(signal.SIGINT)
            if self.signal is not None:
                signal.signal(signal.SIGINT, lambda *_: None)
        except KeyboardInterrupt:
            if self.signal is None:
                raise
            self._ignore_interrupts(loop)

    def on_interrupt(self) -> None:
        """Handle a Ctrl-C."""
        self._drain_at(signal.SIGINT)

    def _drain_at(self, number: signal.Signals) -> None:
        """Drain at the first signal, even if the run drains already for another reason."""
        if self.signal is not None:
            self._cancel(CANCELLING)
            return
        self.signal = number
        if self.draining:
            self._show(FINISHING)
        else:
            self.drain(FINISHING)

    def drain(self, message: str) -> None:
        """Let the running episodes end, as at a first Ctrl-C, for a reason that is shown."""
        if self.draining:
            return
        self.draining = True
        for each in self.on_drain:
            each()
        self._show(message)

    def on_terminate(self) -> None:
        """Handle a SIGTERM, or a SIGHUP because the terminal is gone."""
        self.signal = signal.SIGTERM
        self.draining = True
        self._cancel(TERMINATED)

    def _cancel(self, message: str) -> None:
        if self.cancelled:
            return  # another signal must not interrupt the cleanup
        self.cancelled = True
        if self._target is not None:
            self._target.cancel()
        self._show(message)  # last: writing fails if the terminal is gone

    def _drain_terminated(self) -> None:
        self._drain_at(signal.SIGTERM)
