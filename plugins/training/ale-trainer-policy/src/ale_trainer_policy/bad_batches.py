"""Batches with a non-finite loss: written to disk for debugging; three in a row end the run."""

import tempfile
from pathlib import Path

import msgspec
from attrs import define

from ale.errors import AleError
from ale.types import Batch

AT_MOST = 3


@define
class BadBatches:
    """Counts consecutive steps with a non-finite loss or gradient."""

    _folder: Path | None
    """For the batches; None: a temporary one."""
    in_a_row: int = 0

    def count(self, batch: Batch, *, bad: bool) -> int:
        """Count a step, and write its batch if it was bad; return 1 if it was bad, else 0.

        Raises:
            AleError: it is the third bad step in a row.
        """
        if not bad:
            self.in_a_row = 0
            return 0
        self.in_a_row += 1
        folder = self._folder or Path(tempfile.mkdtemp(prefix="ale-bad-batches-"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"step-{batch.step:05d}.json"
        path.write_bytes(msgspec.json.encode(batch))
        if self.in_a_row >= AT_MOST:
            raise AleError(
                f"the loss or its gradient was not finite in {self.in_a_row} steps in a row; the "
                f"last batch is in {path}. A lower trainer.lr, or trainer.precision: fp32, may help"
            )
        return 1
