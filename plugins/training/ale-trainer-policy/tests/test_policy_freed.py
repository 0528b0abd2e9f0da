"""What a step has freed is given back to the system."""

import os
import platform
from pathlib import Path

import pytest

from ale_trainer_policy.freed import give_back

PIECE, PIECES = 64 << 10, 4000


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other library is asked")
def test_freed_memory_goes_back_although_later_pieces_are_still_in_use() -> None:
    pieces = [b"x" * PIECE for _ in range(PIECES)]
    kept = pieces[::50]  # in between, so that the heap can't simply be shortened
    before = resident()
    del pieces
    held = resident()
    give_back()
    assert len(kept) == PIECES // 50
    assert before - held < 0.5 * PIECE * PIECES, "the control: freeing alone returns little"
    assert before - resident() > 0.8 * PIECE * PIECES
