"""Batches whose loss is not a number: kept for whoever looks into it, and three in a row stop."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from ale.errors import AleError
from ale.types import Batch

AT_MOST = 3


class BadBatches:
    """Counts bad steps in a row.

    Args:
        folder: gives the folder to write batches to; called when the first is written.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self.in_a_row = 0

    def count(self, batch: Batch, *, bad: bool) -> int:
        """Count a step, writing its batch where it was bad; 1 where it was, else 0.

        Raises:
            AleError: it is the third in a row.
        """
        if not bad:
            self.in_a_row = 0
            return 0
        self.in_a_row += 1
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"step-{batch.step:05d}.json"
        path.write_bytes(msgspec.json.encode(batch))
        if self.in_a_row >= AT_MOST:
            raise AleError(
                f"the loss or its gradient was not finite in {self.in_a_row} steps in a row; the "
                f"last batch is in {path}. A lower trainer.lr, or trainer.precision: fp32, may help"
            )
        return 1
