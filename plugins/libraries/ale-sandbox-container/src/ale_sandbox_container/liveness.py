"""Whether a container has ended by itself, which its engine may notice late."""

import time
from pathlib import Path

from ale_sandbox_container.engine import Engine, NotFoundError

_LOOK_S = 0.02
_LOOKS = 500
_EXITING = 0x4
"""PF_EXITING of the kernel: a first process waits in its end for all others."""


def why_ended(engine: Engine, container: str) -> str | None:
    """Why a container does not run; None while it does.

    Where its first process is no more, but the engine says that it runs, somebody has killed it
    just now: the engine is asked until it has noticed.
    """
    for _ in range(_LOOKS):
        try:
            state = engine.state(container)
        except NotFoundError:
            return "is gone"
        if not state.running:
            why = "it was out of memory" if state.out_of_memory else f"exit code {state.exit_code}"
            return f"has ended: {why}"
        if lives(state.pid):
            return None
        time.sleep(_LOOK_S)
    # Its processes can't be seen from here, then.
    return None


def lives(pid: int) -> bool:
    """True for a process that exists and is not exiting."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    state, flags = fields[0], int(fields[6])
    return state not in (b"Z", b"X") and not flags & _EXITING
