"""What a trainer has saved: a folder for each step, there whole or not at all."""

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from attrs import frozen

from ale._store.codec import encode, unreadable
from ale._store.lines import write_whole, writing
from ale.types import StepReport

_REPORT = "step.json"
"""In each folder, beside what the trainer wrote: a kill may fall before the step is told."""


@frozen
class Checkpoints:
    """Those of one run."""

    path: Path

    def folder(self, step: int) -> Path:
        """Where that of a step is, or will be."""
        return self.path / f"{step:05d}"

    def steps(self) -> list[int]:
        """Steps of which there is one, oldest first."""
        return sorted(int(path.name) for path in self.path.glob("*") if path.name.isdecimal())

    def newest(self) -> int:
        """The last step that was learned, whatever has become of those before it; -1 for none."""
        return max(self.steps(), default=-1)

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """A folder for a step's; after the block it has its name, and is one."""
        partial = _aside(self.folder(step))
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.replace(self.folder(step))

    def keep(self, newest: int | None) -> None:
        """Remove all but so many of the newest, and what a kill has left of one.

        Raises:
            StoreError: one can't be removed.
        """
        with writing(self.path):
            for left in self.path.glob(".*.partial"):
                shutil.rmtree(left)
            for step in [] if newest is None else self.steps()[:-newest]:
                # Its name goes first: what a kill leaves of it must not be taken for a whole one.
                shutil.rmtree(self.folder(step).replace(_aside(self.folder(step))))

    def report(self, step: int) -> StepReport:
        """What was told of a step.

        Raises:
            InputError: it can't be read.
        """
        path = self.folder(step) / _REPORT
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError) as error:
            raise unreadable(path, None, error) from error
        # JSON has no NaN: what was none is null.
        metrics = {
            name: math.nan if said is None else said for name, said in stored.metrics.items()
        }
        return StepReport(step=stored.step, policy_version=stored.policy_version, metrics=metrics)


def put_report(folder: Path, report: StepReport) -> None:
    """Write it beside what the trainer wrote."""
    write_whole(folder / _REPORT, encode(report))


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


class _Stored(msgspec.Struct):
    step: int
    policy_version: int
    metrics: dict[str, float | None]
