"""``python -m ale_servers.ending COMMAND...``: runs a program, and ends all of it when asked.

For a program that starts processes of its own and knows nothing about its parent. The program and
what it has started end when this process gets SIGTERM or its standard input is closed, which
happens however the parent ends. Should this process be killed, the program gets SIGTERM.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

END_S = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def main(argv: list[str]) -> int:
    """Run the command to its end; returns its exit status."""
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()

    # Before the program starts: a signal in between would leave it behind.
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # The program gets its own process group, which its children are in.
    # No other thread runs yet, so the child may run Python.
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent
    ) as program:

        def until_closed() -> None:
            while os.read(0, 4096):
                pass
            ended.set()

        def until_it_ends() -> None:
            program.wait()
            ended.set()

        for waiting in (until_closed, until_it_ends):
            threading.Thread(target=waiting, daemon=True).start()
        ended.wait()
        _signal(program.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(END_S)
        _signal(program.pid, signal.SIGKILL)  # kills what it has left behind
        return program.wait()


def _end_with_parent() -> None:
    # Else a program whose supervisor starts another would stay at the address, with other weights.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
