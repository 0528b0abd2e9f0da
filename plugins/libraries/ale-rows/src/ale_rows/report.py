"""What a stage read, wrote and left out: printed, and written next to its output."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from attrs import field, frozen

from ale.errors import StoreError


@frozen(kw_only=True, slots=False)
class Report:
    """The report of one stage, written as ``<output>.report.json``."""

    schema: int = 1
    stage: str
    inputs: tuple[str, ...]
    output: str
    options: Mapping[str, Any] = field(factory=dict)
    read: int
    """Items that the stage read, in `unit`."""
    unit: str
    """Unit of `read` and `dropped`: ``episodes``, ``prompts``, ..."""
    written: int
    """Rows of the output."""
    dropped: Mapping[str, int] = field(factory=dict)
    """Number left out, by reason."""
    notes: Mapping[str, float] = field(factory=dict)
    """Other numbers, such as the mean reward."""

    def lines(self) -> list[str]:
        """For a terminal."""
        lines = [f"{self.output}: {self.written} rows from {self.read} {self.unit}"]
        lines += [f"  {name}: {value:g}" for name, value in self.notes.items()]
        return lines + [f"  left out {n}: {reason}" for reason, n in self.dropped.items()]

    def write(self) -> None:
        """Write it next to the output.

        Raises:
            StoreError: it can't be written.
        """
        path = report_path(Path(self.output))
        data = msgspec.json.format(msgspec.json.encode(self), indent=2)
        try:
            path.write_bytes(data + b"\n")
        except OSError as error:
            raise StoreError(f"{path} can't be written: {error.strerror}") from error


def report_path(output: Path) -> Path:
    """The path of the report of an output."""
    return output.with_name(f"{output.name}.report.json")


def by_reason(dropped: "Counter[str]") -> Mapping[str, int]:
    """The reasons that occurred, the most common first."""
    return {reason: n for reason, n in dropped.most_common() if n}
