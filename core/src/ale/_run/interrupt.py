"""Ctrl-C drains, the second one cancels; SIGTERM and a closed terminal cancel at once."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupt:
    """What the user, or the system, asked of a run."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Nothing was asked yet.

        Args:
            say: is told, in words for the user, what happens now.
        """
        self.draining = False
        self.cancelled = False
        self.signal: signal.Signals | None = None
        self._say = say
        self._target: asyncio.Task[object] | None = None

    @property
    def exit_code(self) -> int | None:
        """128 + n for the signal n that ended the run, or None."""
        return None if self.signal is None else 128 + self.signal

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and SIGHUP for as long as the current task runs."""
        self._target = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.on_interrupt)
        loop.add_signal_handler(signal.SIGTERM, self.on_terminate)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # as it is not under nohup
            loop.add_signal_handler(signal.SIGHUP, self.on_terminate)
        try:
            yield
        finally:
            # No moment in between may have the default handler: what follows is to say how it
            # ended, and one Ctrl-C more must not take that away.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
            if self.signal is not None:
                signal.signal(signal.SIGINT, lambda *_: None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            self._target = None

    def on_interrupt(self) -> None:
        """A Ctrl-C."""
        self.signal = self.signal or signal.SIGINT
        if self.draining:
            self._cancel("Cancelling: what is running is thrown away and cleaned up.")
        else:
            self.draining = True
            self._say("Finishing what is running; Ctrl-C again to cancel it.")

    def on_terminate(self) -> None:
        """A SIGTERM, or the terminal is gone."""
        self.signal = signal.SIGTERM
        self.draining = True
        self._cancel("Terminated: what is running is thrown away and cleaned up.")

    def _cancel(self, message: str) -> None:
        if self.cancelled:
            return  # it is being cleaned up; impatience must not cut that short
        self.cancelled = True
        if self._target is not None:
            self._target.cancel()
        self._say(message)  # last: there may be no terminal any more
