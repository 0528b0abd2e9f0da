"""Ctrl-C and SIGTERM end a training after the update at hand; a second one ends it at once."""

import os
import signal
from types import FrameType

_ASKED = b"Stopping after this update, with a checkpoint; once more to stop at once.\n"


class Stopping:
    """Whether the user wants an end, as a function to be asked after every update.

    It listens from the first question on: before the first update there is nothing to keep, and a
    signal ends the process as usual.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The one that came."""
        self._listens = False

    def __call__(self) -> bool:
        """Was there a signal?"""
        if not self._listens:
            self._listens = True
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)
        return self.signal is not None

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Not print: the signal may have come in the middle of one.
        os.write(2, _ASKED)
