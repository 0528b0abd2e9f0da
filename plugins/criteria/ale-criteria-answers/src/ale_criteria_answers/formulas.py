"""Compares formulas in a process of its own: one that a model wrote can take for ever to work out.

The process is started with the first comparison and serves all of them, because math-verify takes
seconds to import. One that does not answer in time is killed, and the next one starts.
"""

import asyncio
import atexit
import json
import os
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from ale.errors import GradingError

START_S = 120.0
"""Seconds for the imports, which are not counted as time of the comparison."""
LONGEST = 4000
"""Characters; longer formulas fail."""


async def equal_formulas(
    expected: str, found: str, digits: int, timeout_s: float
) -> tuple[bool, str]:
    """Whether two formulas are equal, and why not where that is not plain.

    Raises:
        GradingError: math-verify can't be started.
    """
    if len(found) > LONGEST:
        return False, f"it is longer than {LONGEST} characters"
    request = (expected, found, digits)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_WORKER.thread, _WORKER.compare, request, timeout_s)


class _Worker:
    """One process that compares formulas."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="formulas")
        """One request at a time, and no thread of the shared ones waits."""

    def compare(self, request: tuple[str, str, int], timeout_s: float) -> tuple[bool, str]:
        """Ask the process; it is started where there is none."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        answer = self._ask(request, timeout_s)
        if answer is None:
            self.close()
            return False, f"the comparison did not end in {timeout_s:g} s"
        equal, why = json.loads(answer)
        return bool(equal), str(why)

    def _start(self) -> None:
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ale_criteria_answers.comparing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        atexit.register(self.close)
        if self._line(START_S) != b"ready\n":
            self.close()
            raise GradingError(
                "math-verify could not be started: try python -m ale_criteria_answers.comparing"
            )

    def _ask(self, request: tuple[str, str, int], timeout_s: float) -> bytes | None:
        assert self._process is not None
        assert self._process.stdin is not None
        left = memoryview(json.dumps(request).encode() + b"\n")
        try:
            while left:
                left = left[self._process.stdin.write(left) :]
        except BrokenPipeError:
            return None
        return self._line(timeout_s) or None

    def _line(self, timeout_s: float) -> bytes:
        """A line of the process; empty where none came in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        # One short line per request: what is readable is whole soon, and nothing is left buffered.
        deadline = time.monotonic() + timeout_s
        readable = select.poll()
        readable.register(self._process.stdout, select.POLLIN)
        while self._process.poll() is None and (left := deadline - time.monotonic()) > 0:
            if readable.poll(1000 * min(left, 0.5)):
                return self._process.stdout.readline()
        return b""

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def forget(self) -> None:
        """Leave the process to the one that has forked this one."""
        atexit.unregister(self.close)
        if self._process is not None:
            for pipe in filter(None, (self._process.stdin, self._process.stdout)):
                pipe.close()
            self._process = None


def _renew() -> None:
    global _WORKER
    _WORKER.forget()
    _WORKER = _Worker()


_WORKER = _Worker()
# A fork copies the pool without its thread, and would share the process and its answers.
os.register_at_fork(after_in_child=_renew)
