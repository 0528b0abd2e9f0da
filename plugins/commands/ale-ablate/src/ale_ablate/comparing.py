"""Compare cells: means over seeds, and differences to the first cell, paired by seed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from ale_ablate.area import area
from ale_ablate.claims import Claim, Decoded, claims
from ale_ablate.grid import Cell, Grid
from ale_ablate.measuring import Curve, Measured, height
from ale_figures.statistics import Estimate, estimate, holm, sign_flip

_LAST = 0.1
"""Share of the training steps, at the end, over which training success is taken as final."""


@frozen(kw_only=True)
class Measure:
    """One number of a run that cells are compared by."""

    key: str
    title: str
    description: str
    value: Callable[[Measured], float | None] = field(repr=False)
    tested: bool = False
    """Differences are tested, exactly."""
    share: bool = False
    """A fraction of 1, shown in percent; differences in percentage points."""
    seconds: bool = False


@frozen(kw_only=True)
class Test:
    """Of the differences of a cell to the first, seed by seed."""

    p: float
    """Of the exact sign-flip test, two-sided."""
    corrected: float
    """By Holm, for all tests of the grid."""


@frozen(kw_only=True)
class Row:
    """One cell."""

    cell: Cell
    number: int
    """From 1."""
    runs: tuple[Measured, ...]
    """One per seed, in any state."""
    values: Mapping[str, Mapping[int, float]]
    """By measure and seed, of completed runs."""
    means: Mapping[str, Estimate | None]
    differences: Mapping[str, Estimate | None]
    """To the first cell, over the seeds that both have."""
    tests: Mapping[str, Test] = field(factory=dict)
    """Of these differences, where they are tested."""

    @property
    def completed(self) -> int:
        """Number of completed runs."""
        return sum(run.state == "completed" for run in self.runs)


@frozen(kw_only=True)
class Comparison:
    """The results of a grid so far."""

    grid: Grid
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    held_out: bool
    """Whether success is measured on held-out tasks; else on the training tasks."""
    notes: tuple[str, ...] = ()
    """Warnings for the reader."""
    decoded: tuple[Decoded, ...] = ()
    """Arms and controls by temperature; only of a grid with controls."""
    claims: tuple[Claim, ...] = ()
    """Each arm against the controls."""

    @property
    def runs(self) -> list[Measured]:
        """All runs, cell by cell."""
        return [run for row in self.rows for run in row.runs]

    def curve(self, run: Measured) -> Curve:
        """Success over steps, as compared."""
        return run.held_out if self.held_out else run.train

    @property
    def completed(self) -> int:
        """Number of completed runs."""
        return sum(row.completed for row in self.rows)


def compare(grid: Grid, runs: Sequence[Measured], notes: Sequence[str] = ()) -> Comparison:
    """Compare the runs of a grid.

    Args:
        runs: one for each slot of the grid.
        notes: see `Comparison`.
    """
    counted = [run for run in runs if run.state == "completed"]
    held_out = bool(counted) and all(run.held_out for run in counted)
    measures = tuple(_measures(held_out, _how(counted)))
    if held_out and all(run.greedy for run in counted):
        measures = (measures[0], _GREEDY, *measures[1:])
    rows: list[Row] = []
    for number, cell in enumerate(grid.cells, 1):
        own = tuple(run for run in runs if run.slot.cell == cell)
        values = {measure.key: _values(measure, own) for measure in measures}
        first = rows[0].values if rows else None
        rows.append(
            Row(
                cell=cell,
                number=number,
                runs=own,
                values=values,
                means={m.key: _mean(m, values[m.key]) for m in measures},
                differences={
                    m.key: None if first is None else _difference(m, values[m.key], first[m.key])
                    for m in measures
                },
            )
        )
    controlled = any(cell.control for cell in grid.cells)
    decoded, made = claims(runs) if controlled else ((), ())
    return Comparison(
        grid=grid,
        measures=measures,
        rows=_tested(rows, measures),
        held_out=held_out,
        notes=(*notes, *_broken(rows)),
        decoded=tuple(decoded),
        claims=tuple(made),
    )


def _broken(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence where episodes broke: other tasks may be left in one cell than in another."""
    found = []
    for row in rows:
        done = [run for run in row.runs if run.state == "completed"]
        if broken := sum(run.broken for run in done):
            found.append(f"{broken} of {sum(run.episodes for run in done)} in {row.cell.name}")
    if found:
        yield f"episodes broke, and success is that of the others: {', '.join(found)}"


_GREEDY = Measure(
    key="greedy_success",
    title="greedy success",
    description="success on held-out tasks at temperature 0 in the last evaluation",
    value=lambda run: run.greedy[-1][1],
    share=True,
    tested=True,
)


def _how(runs: Sequence[Measured]) -> str:
    """At which of several temperatures the success of `Measured.held_out` is; empty of one."""
    if all(len(run.evaluations) < 2 for run in runs):
        return ""
    highest = {max(run.evaluations, key=height) for run in runs if run.evaluations}
    if len(highest) > 1:
        return " at the highest temperature"
    (temperature,) = highest
    own = " at the model's own temperature"
    return own if temperature is None else f" at temperature {temperature:g}"


def _measures(held_out: bool, how: str) -> list[Measure]:
    tasks = f"held-out tasks{how}" if held_out else "training tasks"
    final = (
        Measure(
            key="final_success",
            title="final success",
            description=f"success on {tasks} in the last evaluation",
            value=lambda run: run.held_out[-1][1],
            share=True,
            tested=True,
        )
        if held_out
        else Measure(
            key="final_success",
            title="final success",
            description="success on training tasks over the last tenth of the steps",
            value=_last_train,
            share=True,
            tested=True,
        )
    )
    return [
        final,
        Measure(
            key="area",
            title="mean success",
            description=f"area under the curve of success on {tasks}, divided by its width",
            value=lambda run: area(run.held_out if held_out else run.train),
            share=True,
        ),
        Measure(
            key="rollouts",
            title="rollouts",
            description="training episodes of all steps, from any start, including broken ones",
            value=lambda run: float(run.rollouts),
        ),
        Measure(
            key="seconds",
            title="wall time",
            description="of a run, after its parts are built; unknown if the run was killed",
            value=lambda run: run.seconds,
            seconds=True,
        ),
    ]


def _last_train(run: Measured) -> float | None:
    steps = sorted(run.counts)
    last = steps[-max(1, math.ceil(_LAST * len(steps))) :]
    graded = sum(run.counts[step][0] for step in last)
    return sum(run.counts[step][1] for step in last) / graded if graded else None


def _tested(rows: Sequence[Row], measures: Sequence[Measure]) -> tuple[Row, ...]:
    """The rows with a test of each difference of an arm to the first."""
    keys = [measure.key for measure in measures if measure.tested]
    pairs = [
        (row, key, list(_changes(row.values[key], rows[0].values[key]).values()))
        for row in rows[1:]
        if not row.cell.control
        for key in keys
    ]
    known = [(row, key, changes) for row, key, changes in pairs if changes]
    p_values = [sign_flip(changes) for *_, changes in known]
    tests: dict[int, dict[str, Test]] = {row.number: {} for row in rows}
    for (row, key, _), p, corrected in zip(known, p_values, holm(p_values), strict=True):
        tests[row.number][key] = Test(p=p, corrected=corrected)
    return tuple(evolve(row, tests=tests[row.number]) for row in rows)


def _changes(values: Mapping[int, float], first: Mapping[int, float]) -> dict[int, float]:
    return {seed: value - first[seed] for seed, value in values.items() if seed in first}


def _values(measure: Measure, runs: Sequence[Measured]) -> dict[int, float]:
    found = {run.slot.seed: measure.value(run) for run in runs if run.state == "completed"}
    return {seed: value for seed, value in found.items() if value is not None}


def _mean(measure: Measure, values: Mapping[int, float]) -> Estimate | None:
    found = estimate(list(values.values()))
    return found and found.within(0.0, 1.0 if measure.share else math.inf)


def _difference(
    measure: Measure, values: Mapping[int, float], first: Mapping[int, float]
) -> Estimate | None:
    found = estimate(list(_changes(values, first).values()))
    return found.within(-1.0, 1.0) if found and measure.share else found
