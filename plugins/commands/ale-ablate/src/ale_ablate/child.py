"""Becomes ``ale``, and is told to end when the process that started it is gone.

Run by its path, with nothing but the standard library: PARENT INTERPRETER ARGUMENT...
A grid that is killed must not leave a run behind that writes on while it is resumed.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the signal, then become the command."""
    parent, interpreter, *arguments = sys.argv[1:]
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux; elsewhere a run outlives a grid that is killed
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(128 + signal.SIGTERM)  # it was gone before the kernel was asked
    # -P: a folder in which somebody works is no place for modules.
    os.execv(interpreter, [interpreter, "-P", "-m", "ale", *arguments])  # noqa: S606


if __name__ == "__main__":
    main()
