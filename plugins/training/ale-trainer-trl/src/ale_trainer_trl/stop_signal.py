"""Stop a training after the current update on Ctrl-C or SIGTERM; at once on a second one."""

import os
import signal
from types import FrameType

_ASKED = b"Stopping after this update, with a checkpoint; press again to stop at once.\n"


class StopSignal:
    """A `Stop` function that returns True after SIGINT or SIGTERM.

    Handlers are installed by the first call: before the first update there is nothing to save, and
    a signal ends the process as usual.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal received."""
        self._installed = False

    def __call__(self) -> bool:
        """Has a signal been received?"""
        if not self._installed:
            self._installed = True
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)
        return self.signal is not None

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Not print, which is not reentrant.
        os.write(2, _ASKED)
