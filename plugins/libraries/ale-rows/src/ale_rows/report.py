"""What a stage read, wrote and dropped: printed, and written beside its output."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from attrs import field, frozen

from ale.errors import StoreError


@frozen(kw_only=True, slots=False)
class Report:
    """Of one stage. Written as ``<output>.report.json``."""

    schema: int = 1
    stage: str
    inputs: tuple[str, ...]
    output: str
    options: Mapping[str, Any] = field(factory=dict)
    read: int
    """What the stage worked on: see `unit`."""
    unit: str
    """Of `read` and, where nothing else is said, of `dropped`: ``episodes``, ``prompts``, ..."""
    written: int
    """Rows of the output."""
    dropped: Mapping[str, int] = field(factory=dict)
    """How many, by reason."""
    notes: Mapping[str, float] = field(factory=dict)
    """Other numbers, such as the mean reward."""

    def lines(self) -> list[str]:
        """For a terminal."""
        said = [f"{self.output}: {self.written} rows from {self.read} {self.unit}"]
        said += [f"  {name}: {value:g}" for name, value in self.notes.items()]
        return said + [f"  left out {n}: {reason}" for reason, n in self.dropped.items()]

    def write(self) -> None:
        """Write it beside the output.

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
    """Where the report of an output stands."""
    return output.with_name(f"{output.name}.report.json")


def by_reason(dropped: "Counter[str]") -> Mapping[str, int]:
    """The reasons that occurred, the most common first."""
    return {reason: n for reason, n in dropped.most_common() if n}
