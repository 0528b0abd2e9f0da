"""Stream many records without frequent garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 1_000_000


@contextmanager
def streaming() -> Iterator[None]:
    """Let the garbage collector run rarely in the block.

    Records have no cycles, so reference counting frees them; the collector only visits them, which
    took a third of the time of `score`. The threshold is process-wide; it is restored at the end.
    """
    before = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
