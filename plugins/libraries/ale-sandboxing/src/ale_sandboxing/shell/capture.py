"""Output of a command, capped to head and tail, and its result."""

from ale.types import ExecResult

KILLED = 137
"""The exit code of a command that was killed."""
_SPARE = 1 << 18
"""Bytes beyond the limit that are kept until they are cut off at once."""


class Capture:
    """The first half and the last half of a stream, in memory that does not grow with it."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Add the next piece."""
        self._total += len(data)
        space = self._head_limit - len(self._head)
        if space > 0:
            self._head += data[:space]
            data = data[space:]
        self._tail += data
        if len(self._tail) > self._tail_limit + _SPARE:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def truncated(self) -> bool:
        """Part of the middle was dropped."""
        return self._total > self._head_limit + self._tail_limit

    def value(self) -> bytes:
        """Head and tail, at most the limit."""
        start = max(0, len(self._tail) - self._tail_limit)
        return bytes(self._head + self._tail[start:])


def result_of(
    code: int, stdout: Capture, stderr: Capture, *, timed_out: bool, duration_s: float
) -> ExecResult:
    """The result of a command that has ended with `code`."""
    return ExecResult(
        exit_code=code,
        stdout=stdout.value(),
        stderr=stderr.value(),
        timed_out=timed_out,
        truncated=stdout.truncated or stderr.truncated,
        duration_s=duration_s,
    )
