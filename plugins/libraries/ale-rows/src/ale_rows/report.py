"""Report of what a stage read, wrote and left out: printed, and written next to its output."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import define, field, frozen

from ale.files import store_errors
from ale.text import counted

MOST_PLACES = 100
"""Lines that are named for each reason in a report."""
_PRINTED = 10


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
    """Unit of `read` and `dropped`, in the plural: ``episodes``, ``prompts``, ..."""
    written: int
    """Rows of the output."""
    dropped: Mapping[str, int] = field(factory=dict)
    """Number left out, by reason."""
    lines_left_out: Mapping[str, Sequence[str]] = field(factory=dict)
    """The first of them as ``file:line``, by reason; of imported files."""
    notes: Mapping[str, float] = field(factory=dict)
    """Other numbers, such as the mean reward."""

    def lines(self) -> list[str]:
        """The report as lines for a terminal."""
        written, read = counted(self.written, "row"), counted(self.read, self.unit[:-1])
        lines = [f"{self.output}: {written} from {read}"]
        lines += [f"  {name}: {value:g}" for name, value in self.notes.items()]
        return lines + [self._left_out(reason, n) for reason, n in self.dropped.items()]

    def _left_out(self, reason: str, n: int) -> str:
        where = list(self.lines_left_out.get(reason, ()))[:_PRINTED]
        more = f" and {n - len(where)} more" if where and n > len(where) else ""
        return f"  left out {n}: {reason}" + (f" ({', '.join(where)}{more})" if where else "")


@define
class Counts:
    """Counts of a stage while it streams rows."""

    seen: Counter[str] = field(factory=Counter)
    """Counts by name; the one named like the stage's unit is what it read, others are notes."""
    dropped: Counter[str] = field(factory=Counter)
    """Counts by reason."""
    places: dict[str, list[str]] = field(factory=dict)
    """The first of them as ``file:line``, by reason."""

    def leave_out(self, reason: str, place: str) -> None:
        """Count an item of a file that is left out."""
        self.dropped[reason] += 1
        if self.dropped[reason] <= MOST_PLACES:
            self.places.setdefault(reason, []).append(place)

    def report(
        self,
        stage: str,
        inputs: Sequence[Path],
        output: Path,
        *,
        unit: str,
        written: int,
        options: Mapping[str, Any],
        notes: Mapping[str, float] | None = None,
    ) -> Report:
        """The report of a finished stage, which is written next to the output.

        Args:
            notes: notes that precede the counted ones.

        Raises:
            StoreError: it can't be written.
        """
        read = self.seen.pop(unit, 0)
        report = Report(
            stage=stage,
            inputs=tuple(map(str, inputs)),
            output=str(output),
            options=options,
            read=read,
            unit=unit,
            written=written,
            dropped={reason: n for reason, n in self.dropped.most_common() if n},
            notes={**(notes or {}), **self.seen},
            lines_left_out=self.places,
        )
        path = report_path(output)
        with store_errors(path):
            path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        return report


def report_path(output: Path) -> Path:
    """The path of the report of an output."""
    return output.with_name(f"{output.name}.report.json")
