"""One rank of torchrun: becomes its command; rank 0 records how the run ended.

Run by its path, with only the standard library: FILE COMMAND... torchrun starts all ranks again
after any status but 0, and does not pass on rank 0's status. So a final status (completed, broken
episodes, interrupted, bad input) is written to FILE, which until then holds the process id, and the
status is 0. If rank 0 was killed, or its failure leaves other ranks waiting, it stays a failure.
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


def main() -> None:
    """Execute the command."""
    file, *command = sys.argv[1:]
    # Otherwise the ranks would outlive a killed torchrun agent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.environ.get("RANK") != "0":
        os.execvp(command[0], command)  # noqa: S606
    with subprocess.Popen(command) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda got, _: process.send_signal(got))
        write(Path(file), {"pid": process.pid, "host": os.uname().nodename})
        status = process.wait()
    if status < 0 or status == _FAILED:
        sys.exit(_FAILED)
    write(Path(file), {"status": status})


def write(path: Path, record: dict[str, object]) -> None:
    """Replace the file atomically."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(record))
    partial.replace(path)


if __name__ == "__main__":
    main()
