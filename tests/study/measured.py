"""What the stored runs of a grid say: a row per cell, with intervals over seeds."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen
from plan import Cell, Plan

from ale.errors import InputError, Problem
from ale.runs import RunReader
from ale_ablate.grid import Grid
from ale_ablate.measuring import Measured, measure_grid
from ale_statistics import Estimate, estimate

_LAST = 0.25
"""Share of the steps, at the end, over which training success is taken."""


@frozen(kw_only=True)
class Numbers:
    """One run."""

    before: float
    """Success in the first evaluation, before any step."""
    after: float
    """Success in the last one."""
    training: float | None
    """Success from the tasks' own beginnings over the last quarter of the steps."""
    peak: float
    """The largest gradient norm of a step, over the median one."""
    masked: float
    """Share of the tokens with a weight that the mask left out, mean over steps."""
    rollouts: tuple[int, ...]
    """Training episodes of each step."""
    broken: int
    seconds: float | None


@frozen(kw_only=True)
class Row:
    """One cell."""

    cell: Cell
    runs: Mapping[int, Numbers]
    """By seed, of completed runs."""
    asked: int
    """Seeds that it should have."""

    def mean(self, of: Callable[[Numbers], float | None]) -> Estimate | None:
        """Over seeds; bounds between 0 and 1."""
        known = [value for run in self.runs.values() if (value := of(run)) is not None]
        found = estimate(known)
        return found and found.within(0.0, 1.0)

    def change(self, first: "Row", of: Callable[[Numbers], float | None]) -> Estimate | None:
        """Against another cell, over the seeds that both have."""
        pairs = [(of(run), of(first.runs[s])) for s, run in self.runs.items() if s in first.runs]
        return estimate([a - b for a, b in pairs if a is not None and b is not None])


@frozen(kw_only=True)
class Table:
    """A grid as far as it has been run."""

    plan: Plan
    rows: Sequence[Row] = field(repr=False)
    rollouts: int | None
    """Training episodes of every run: the same for all, else it is an error."""


def table(plan: Plan, grid: Grid, first: tuple[Plan, Grid] | None) -> Table:
    """Measure a grid.

    Args:
        first: the grid whose first cell stands in front.

    Raises:
        InputError: its runs had unequal numbers of rollouts, or one of them can't be read.
    """
    rows = _rows(plan, grid)
    if first is not None:
        rows.insert(0, _rows(*first)[0])
    return Table(plan=plan, rows=rows, rollouts=_equal(plan, rows))


def _rows(plan: Plan, grid: Grid) -> list[Row]:
    made = [" ".join(cell.overrides) for cell in grid.cells]
    if made != [" ".join(cell.overrides) for cell in plan.cells]:
        message = "it has other cells than plan.py; give the plan a new name, or delete the folder"
        raise InputError([Problem(message=message, file=str(grid.path))])
    measured = measure_grid(grid)
    return [
        Row(
            cell=planned,
            asked=len(grid.seeds),
            runs={
                run.slot.seed: _numbers(run)
                for run in measured
                if run.slot.cell == cell and run.state == "completed"
            },
        )
        for planned, cell in zip(plan.cells, grid.cells, strict=True)
    ]


def _numbers(run: Measured) -> Numbers:
    assert run.path is not None
    steps = list(_metrics(run.path))
    norms = sorted(norm for step in steps if (norm := step.get("grad_norm")))
    masked = [step.get("masked_fraction", 0.0) for step in steps]
    return Numbers(
        before=run.held_out[0][1],
        after=run.held_out[-1][1],
        training=_training(run.counts),
        peak=norms[-1] / norms[len(norms) // 2] if norms else math.nan,
        masked=math.fsum(masked) / len(masked),
        rollouts=tuple(n for _, n in sorted(run.rollouts_by_step.items())),
        broken=run.broken,
        seconds=run.seconds,
    )


def _metrics(path: Path) -> Iterator[Mapping[str, float]]:
    for event in RunReader(path).events():
        if event["event"] == "step_finished":
            yield event["metrics"]


def _training(counts: Mapping[int, tuple[int, int]]) -> float | None:
    steps = sorted(counts)
    last = steps[-math.ceil(_LAST * len(steps)) :]
    graded = sum(counts[step][0] for step in last)
    return sum(counts[step][1] for step in last) / graded if graded else None


def _equal(plan: Plan, rows: Sequence[Row]) -> int | None:
    """Rollouts of a run, where all have the same in every step."""
    found = {
        run.rollouts: f"{row.cell.label}, seed {seed}"
        for row in rows
        for seed, run in row.runs.items()
    }
    if len(found) > 1:
        each = "; ".join(f"{sum(steps)} in {name}" for steps, name in found.items())
        message = f"the runs of '{plan.name}' have unequal numbers of rollouts: {each}"
        raise InputError([Problem(message=message, file=plan.name)])
    return sum(next(iter(found))) if found else None
