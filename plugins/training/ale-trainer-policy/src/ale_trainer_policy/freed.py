"""Give freed memory back to the system."""

import ctypes
import sys


def give_back() -> None:
    """Let the C library return freed memory where it can, which is with glibc on Linux.

    A step on a CPU frees gigabytes in pieces of sizes that change with the lengths of its rows.
    glibc keeps them in case they are requested again, and the process would grow at every step.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
