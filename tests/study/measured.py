"""What the runs of a grid say: a row per cell, with intervals and tests over seeds."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen
from plan import Cell, Plan

from ale.errors import InputError, Problem
from ale.runs import RunReader
from ale_ablate.grid import Grid
from ale_ablate.measuring import Evaluated, Measured, measure_grid
from ale_statistics import Estimate, estimate, holm, sign_flip

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
    clamped: float
    """Share of these whose ratio the clamp changed, mean over steps."""
    rollouts: tuple[int, ...]
    """Training episodes of each step."""
    broken: int
    seconds: float | None
    greedy_before: float | None = None
    """As `before`, at temperature 0; None where it was not measured."""
    greedy_after: float | None = None
    evaluated: tuple[Evaluated, ...] = ()
    """Every evaluation, with counts."""


@frozen(kw_only=True)
class Row:
    """One cell."""

    cell: Cell
    runs: Mapping[int, Numbers]
    """By seed, of completed runs."""
    asked: int
    """Seeds that it should have."""

    def values(self, of: Callable[[Numbers], float | None]) -> Mapping[int, float]:
        """By seed, where it is known."""
        return {s: value for s, run in self.runs.items() if (value := of(run)) is not None}

    def mean(self, of: Callable[[Numbers], float | None]) -> Estimate | None:
        """Over seeds; bounds between 0 and 1."""
        found = estimate(list(self.values(of).values()))
        return found and found.within(0.0, 1.0)

    def change(self, first: "Row", of: Callable[[Numbers], float | None]) -> Estimate | None:
        """Against another cell, over the seeds that both have."""
        return estimate(self.changes(first, of))

    def changes(self, first: "Row", of: Callable[[Numbers], float | None]) -> list[float]:
        """The differences to another cell, seed by seed."""
        own, others = self.values(of), first.values(of)
        return [value - others[seed] for seed, value in own.items() if seed in others]


@frozen(kw_only=True)
class Table:
    """A grid as far as it has been run."""

    plan: Plan
    rows: Sequence[Row] = field(repr=False)
    rollouts: int | None
    """Training episodes of every run: the same for all, else it is an error."""


Measures = Sequence[tuple[Cell, int, Mapping[int, Numbers]]]
"""Of each cell: how many seeds it should have, and its completed runs by seed."""


def table(plan: Plan, measures: Measures, first: Measures | None) -> Table:
    """Make the table of a grid.

    Args:
        first: those of the grid whose first cell stands in front.

    Raises:
        InputError: its runs had unequal numbers of rollouts.
    """
    every = [*(first or ())[:1], *measures]
    rows = [Row(cell=cell, asked=asked, runs=runs) for cell, asked, runs in every]
    return Table(plan=plan, rows=rows, rollouts=_equal(plan, rows))


def measure(plan: Plan, grid: Grid) -> Measures:
    """Measure the runs of a grid.

    Raises:
        InputError: it has other cells than its plan, or a run can't be read.
    """
    made = [" ".join(cell.overrides) for cell in grid.cells]
    planned = [" ".join(cell.overrides) for cell in plan.cells]
    if len(made) != len(planned) or not all(map(str.startswith, made, planned)):
        message = "it has other cells than plan.py; give the plan a new name, or delete the folder"
        raise InputError([Problem(message=message, file=str(grid.path))])
    measured = measure_grid(grid)
    return [
        (
            planned_cell,
            len(grid.seeds),
            {
                run.slot.seed: _numbers(run)
                for run in measured
                if run.slot.cell == cell and run.state == "completed"
            },
        )
        for planned_cell, cell in zip(plan.cells, grid.cells, strict=True)
    ]


def p_values(
    table: Table, of: Callable[[Numbers], float | None]
) -> Mapping[str, tuple[float, float]]:
    """p of each cell against the first by label, exact and corrected by Holm for the table."""
    changes = {row.cell.label: row.changes(table.rows[0], of) for row in table.rows[1:]}
    known = {label: sign_flip(found) for label, found in changes.items() if found}
    return dict(
        zip(known, zip(known.values(), holm(list(known.values())), strict=True), strict=True)
    )


def _numbers(run: Measured) -> Numbers:
    assert run.path is not None
    steps = list(_metrics(run.path))
    norms = sorted(norm for step in steps if (norm := step.get("grad_norm")))
    masked = [step.get("masked_fraction", 0.0) for step in steps]
    clamped = [step.get("clamped_fraction", 0.0) for step in steps]
    return Numbers(
        before=run.held_out[0][1],
        after=run.held_out[-1][1],
        greedy_before=run.greedy[0][1] if run.greedy else None,
        greedy_after=run.greedy[-1][1] if run.greedy else None,
        evaluated=tuple(run.evaluated),
        training=_training(run.counts),
        peak=norms[-1] / norms[len(norms) // 2] if norms else math.nan,
        masked=math.fsum(masked) / len(masked),
        clamped=math.fsum(clamped) / len(clamped),
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
