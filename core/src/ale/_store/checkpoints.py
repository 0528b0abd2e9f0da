"""A trainer's checkpoints: a folder for each step, complete or absent."""

import math
import shutil
from pathlib import Path

import msgspec
from attrs import frozen

from ale._store.codec import encode, unreadable
from ale.errors import InputError
from ale.files import store_errors, write_whole
from ale.types import StepReport

_REPORT = "step.json"
"""The run's file in each folder: the run may be killed before it reports the step."""


@frozen
class Checkpoints:
    """The checkpoints of one run."""

    path: Path

    def folder(self, step: int) -> Path:
        """The folder of a step's checkpoint, whether or not it exists."""
        return self.path / f"{step:05d}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first."""
        return sorted(int(path.name) for path in self.path.glob("*") if path.name.isdecimal())

    def newest(self) -> int:
        """The last step with a checkpoint, or -1; it includes what was learned in earlier steps."""
        return max(self.steps(), default=-1)

    def start(self, step: int) -> Path:
        """An empty folder to write a step's checkpoint into; it counts as one after `complete`."""
        partial = _partial(self.folder(step))
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def complete(self, step: int) -> None:
        """Let what was written after `start` count as the step's checkpoint."""
        _partial(self.folder(step)).replace(self.folder(step))

    def keep_newest(self, n: int | None, every: int | None = None) -> None:
        """Remove all but the newest `n` (None keeps all), and partial ones of a killed run.

        Args:
            every: keep those after each multiple of so many steps too.

        Raises:
            StoreError: one can't be removed.
        """
        with store_errors(self.path):
            for left in self.path.glob(".*.partial"):
                shutil.rmtree(left)
            for step in [] if n is None else self.steps()[:-n]:
                if every is not None and (step + 1) % every == 0:
                    continue
                self.remove(step)

    def remove(self, step: int) -> None:
        """Remove a step's checkpoint.

        Raises:
            StoreError: it can't be removed.
        """
        with store_errors(self.path):
            # Renamed first: a partly removed one must not be taken for a complete one.
            shutil.rmtree(self.folder(step).replace(_partial(self.folder(step))))

    def report(self, step: int) -> StepReport:
        """The report of a step.

        Raises:
            InputError: it can't be read, or the folder holds another step's checkpoint.
        """
        path = self.folder(step) / _REPORT
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable(path, None, error) from error
        if stored.step != step:
            message = f"this is the checkpoint of step {stored.step}, not of step {step}"
            hint = "has the folder been renamed, or copied over another?"
            raise InputError.of(message, file=str(path), hint=hint)
        # JSON has no NaN: it was stored as null.
        metrics = {
            name: math.nan if value is None else value for name, value in stored.metrics.items()
        }
        return StepReport(step=stored.step, policy_version=stored.policy_version, metrics=metrics)


def write_report(folder: Path, report: StepReport) -> None:
    """Write a step's report into its checkpoint folder."""
    write_whole(folder / _REPORT, encode(report))


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


class _Stored(msgspec.Struct):
    step: int
    policy_version: int
    metrics: dict[str, float | None]
