"""One rank of torchrun: becomes its command; rank 0 records how the run ended.

Run by its path, with only the standard library: FILE COMMAND... torchrun starts all ranks again
after any status but 0, and does not pass on rank 0's status. So a final status (completed, broken
episodes, interrupted, bad input) is written to FILE, which until then holds the process id, and the
status is 0. If rank 0 was killed, or its failure leaves other ranks waiting, it stays a failure.
A signal that asks rank 0 to end before it can answer is final, too: ranks that are started again
find its status and end.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_FAILED = 1
_LOST = 75


def main() -> None:
    """Execute the command."""
    file, *command = sys.argv[1:]
    # Otherwise the ranks would outlive a killed torchrun agent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and has_ended(Path(file)):
        return
    if os.environ.get("RANK") != "0":
        os.execvp(command[0], command)  # noqa: S606
    from_torchrun = set()

    def pass_on(number: int, _: object) -> None:
        from_torchrun.add(number)
        process.send_signal(number)

    with subprocess.Popen(command) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, pass_on)
        write(Path(file), {"pid": process.pid, "host": os.uname().nodename})
        status = process.wait()
    if -status in (signal.SIGINT, signal.SIGTERM):
        status = 128 - status
    # torchrun sends a signal when another rank is lost: what follows is no end of the run.
    if from_torchrun or status < 0 or status in (_FAILED, _LOST):
        sys.exit(_FAILED)
    write(Path(file), {"status": status})


def has_ended(path: Path) -> bool:
    """True if the file has a final status."""
    return path.exists() and "status" in json.loads(path.read_text())


def write(path: Path, record: dict[str, object]) -> None:
    """Replace the file atomically."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(record))
    partial.replace(path)


if __name__ == "__main__":
    main()
