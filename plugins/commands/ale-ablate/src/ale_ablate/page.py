"""``report.html`` of an ablation: curves, intervals, and the runs that the numbers come from."""

import os
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote

from ale.text import counted
from ale_ablate.comparing import Comparison, Measure
from ale_ablate.curves import charts
from ale_ablate.grid import Grid
from ale_ablate.measuring import Measured
from ale_ablate.tables import (
    CAPTIONS,
    arms,
    captions,
    compared,
    decoded,
    difference_text,
    pairs,
    tests,
)
from ale_ablate.texts import estimate_text
from ale_figures.charts import render
from ale_figures.statistics import Estimate

_TONES = {
    "completed": "good",
    "unfinished": "warn",
    "missing": "bad",
    "damaged": "bad",
    "unclear": "bad",
}
_LEAST_REACH = 0.05


class Links(NamedTuple):
    """Relative links to a run's directory and to its report, where it has one."""

    run: str
    report: str | None


def page(comparison: Comparison) -> Iterator[str]:
    """The file, piece by piece."""
    grid = comparison.grid
    return render(
        "ale_ablate",
        "report.html",
        style=(files("ale_ablate") / "static" / "report.css").read_text(encoding="utf-8"),
        comparison=comparison,
        grid=grid,
        titles=[measure.title for measure in comparison.measures],
        tones=_TONES,
        captions=[line.removeprefix("- ") for line in captions(comparison)],
        charts=charts(comparison),
        reach={measure.key: _reach(comparison, measure) for measure in comparison.measures},
        about=_about(grid),
        configs=[(cell.name, _relative(grid, grid.config(cell))) for cell in grid.cells],
        counted=counted,
        pairs=pairs,
        estimate_text=estimate_text,
        difference_text=difference_text,
        arms=arms(comparison),
        tests=list(tests(comparison)),
        decoded=decoded(comparison),
        compared=compared(comparison.claims),
        control_captions=CAPTIONS,
        value_text=_value_text,
        links=lambda run: _links(grid, run),
    )


def _reach(comparison: Comparison, measure: Measure) -> float:
    """How far the bars of a column of differences go to either side."""
    found = [row.differences[measure.key] for row in comparison.rows[1:]]
    ends = [
        abs(value)
        for each in found
        if each is not None
        for value in (each.mean, each.low, each.high)
        if value is not None
    ]
    return max([_LEAST_REACH, *ends])


def _value_text(measure: Measure, value: float | None) -> str:
    return estimate_text(measure, None if value is None else Estimate(n=1, mean=value), 1)


def _links(grid: Grid, run: Measured) -> Links | None:
    if run.path is None:
        return None
    where = _relative(grid, run.path)
    report = f"{where}/report.html" if (run.path / "report.html").exists() else None
    return Links(f"{where}/", report)


def _relative(grid: Grid, path: os.PathLike[str]) -> str:
    return quote(os.path.relpath(path, grid.path))


def _about(grid: Grid) -> dict[str, str]:
    return {
        "config": grid.source,
        "overrides": ", ".join(grid.overrides) or "none",
        "seeds": ", ".join(map(str, grid.seeds)),
        "directory": str(grid.path),
        "versions": ", ".join(f"{name} {version}" for name, version in grid.versions.items()),
    }
