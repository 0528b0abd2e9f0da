"""Becomes a command on some CPU cores, which gets a signal when the process that started it dies.

Run by its path, with only the standard library: PARENT SIGNAL CORES COMMAND...; SIGNAL is a number,
CORES is ``0,1`` or ``-``. A killed launcher must not leave processes behind.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set both, then execute the command."""
    parent, number, cores, *command = sys.argv[1:]
    if cores != "-":
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    # Ignored where a shell put ale in the background, and blocked in the threads of Ray.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(128 + int(number))  # it was gone before the kernel was asked
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]} can't be started: {error.strerror}")


if __name__ == "__main__":
    main()
