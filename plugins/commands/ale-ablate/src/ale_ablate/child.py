"""Executes ``ale`` so that it receives SIGTERM when the process that started it dies.

Run by its path, with only the standard library: PARENT INTERPRETER ARGUMENT...
A killed grid must not leave runs that keep writing while it is resumed.
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
    # -P: modules are not imported from the working directory.
    os.execv(interpreter, [interpreter, "-P", "-m", "ale", *arguments])  # noqa: S606


if __name__ == "__main__":
    main()
