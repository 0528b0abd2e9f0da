"""The file of rows: grows by whole steps, and a step that is done again replaces itself."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ale.errors import StoreError
from ale_trainer_export.rows import SCHEMA


class _Head(msgspec.Struct):
    """The part of a row that says where it belongs."""

    schema: int
    run: str
    step: int


class RowFile:
    """Rows of one run, in the order of their steps.

    The file itself is all the state there is. Before a step is written, everything from its first
    row on is cut off: what a crash in the middle of the step has left (the torn last line too),
    and what a run that went back to an earlier checkpoint had written after it.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path = path
        self._run_id = run_id
        self._lock = threading.Lock()
        self._last: tuple[int, int] | None = None
        """The last step that was written, and the bytes of the file after it."""

    def replace(self, step: int, lines: Iterable[bytes]) -> None:
        """Write the rows of `step` in the place of it and of all that follows it; on disk after.

        Args:
            lines: each a row as JSON, without its newline.

        Raises:
            StoreError: the file holds something else, or rows of another run. Nothing is changed.
        """
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                if self._last is None or step <= self._last[0] or size != self._last[1]:
                    file.truncate(self._end_before(step))
                file.writelines(line + b"\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
                self._last = (step, file.seek(0, os.SEEK_END))

    def _end_before(self, step: int) -> int:
        """Bytes of the rows of earlier steps."""
        end = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if self._is_torn(line) or self._step(line, number) >= step:
                    break
                end += len(line)
        return end

    def _is_torn(self, line: bytes) -> bool:
        """Is it the beginning of a row of this run? Any other text without an end is not ours."""
        begin = b'{"schema":%d,"run":%s,"step":' % (SCHEMA, msgspec.json.encode(self._run_id))
        ours = line.startswith(begin) or begin.startswith(line)
        return ours and not line.endswith(b"\n")

    def _step(self, line: bytes, number: int) -> int:
        where = f"{self._path}:{number}"
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{where}: not a row of an export ({error}); choose another path"
            ) from error
        if head.schema != SCHEMA:
            raise StoreError(f"{where}: schema {head.schema}, not {SCHEMA}; choose another path")
        if head.run != self._run_id:
            raise StoreError(f"{where}: a row of run {head.run!r}; choose another path")
        return head.step
