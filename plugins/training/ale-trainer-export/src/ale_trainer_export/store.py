"""The file of rows: appended step by step; a repeated step replaces its rows."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ale.errors import StoreError
from ale_trainer_export.rows import SCHEMA


class _Head(msgspec.Struct):
    """The leading fields of a row."""

    schema: int
    run: str
    step: int


class RowFile:
    """Rows of one run, in the order of their steps.

    The file is the only state. Before a step is written, the file is truncated at its first row.
    This removes the rows of an interrupted attempt, a torn last line included, and the rows of
    later steps if the run was resumed from an earlier checkpoint.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path = path
        self._run_id = run_id
        self._lock = threading.Lock()
        self._last: tuple[int, int] | None = None
        """The last step written, and the file size after it."""

    def replace(self, step: int, lines: Iterable[bytes]) -> None:
        """Replace the rows of `step` and of all later steps; synced to disk.

        Args:
            lines: each a row as JSON, without its newline.

        Raises:
            StoreError: the file has other content, or rows of another run. Nothing is changed.
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
        """Size in bytes of the rows of earlier steps."""
        end = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if self._is_torn(line) or self._step(line, number) >= step:
                    break
                end += len(line)
        return end

    def _is_torn(self, line: bytes) -> bool:
        """Is it an incomplete row of this run? Any other text is not."""
        begin = b'{"schema":%d,"run":%s,"step":' % (SCHEMA, msgspec.json.encode(self._run_id))
        ours = line.startswith(begin) or begin.startswith(line)
        return ours and not line.endswith(b"\n")

    def _step(self, line: bytes, number: int) -> int:
        where = f"{self._path}:{number}"
        try:
            head = msgspec.json.decode(line, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{where}: not a row of an export ({error}); choose another path"
            ) from error
        if head.schema != SCHEMA:
            raise StoreError(f"{where}: schema {head.schema}, not {SCHEMA}; choose another path")
        if head.run != self._run_id:
            raise StoreError(f"{where}: a row of run {head.run!r}; choose another path")
        return head.step
