"""Give freed memory back to the system, and say what needs less."""

import ctypes
import sys

LESS_MEMORY = (
    "`ale plan CONFIG` says what takes the memory, and which options take less, such as "
    "trainer.activations=recompute or a smaller trainer.max_tokens_per_microbatch. A server on the "
    "same GPU takes memory too: vLLM nearly all, unless its gpu_memory is less."
)


def give_back() -> None:
    """Let the C library return freed memory where it can, which is with glibc on Linux.

    A step on a CPU frees gigabytes in pieces of sizes that change with the lengths of its rows.
    glibc keeps them in case they are requested again, and the process would grow at every step.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
