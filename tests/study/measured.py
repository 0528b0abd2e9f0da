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
from ale_figures.statistics import Estimate, estimate, holm, sign_flip

_LAST = 0.25
"""Share of the steps, at the end, over which training success is taken."""
Key = tuple[int, int]
"""A run: the number of its start, and its seed."""


@frozen(kw_only=True)
class Numbers:
    """One run, from where its demonstrations ended."""

    training: float | None
    """Success from the tasks' own beginnings over the last quarter of the steps."""
    peak: float
    """The largest gradient norm of a step, over the median one."""
    masked: float
    """Share of the tokens with a weight that the mask left out, mean over steps."""
    clamped: float
    """Share of these whose ratio the clamp changed, mean over steps."""
    clipped: float
    """Share of these that the clip left out, mean over steps."""
    masked_chunks: float | None
    """As `masked`, of chunks: those of which the mask left out a token."""
    clamped_chunks: float | None
    """As `clamped`, of chunks: those of which the clamp changed a token's ratio."""
    age: float | None
    """Versions by which the weights that sampled a token were behind, mean over training tokens."""
    chunks: float | None
    """Chunks of an episode, mean over episodes from the tasks' own beginnings."""
    rollouts: tuple[int, ...]
    """Training episodes of each step."""
    broken: int
    seconds: float | None
    evaluated: tuple[Evaluated, ...]
    """Every evaluation, with counts: the first ones are of the policy that all arms begin with."""

    @property
    def before(self) -> float | None:
        """Success at the temperature of training, before the first step; None if not stored."""
        return _first(self._sampled)

    @property
    def after(self) -> float:
        """Success at the temperature of training, after the last step."""
        return self._sampled[-1]

    @property
    def greedy_before(self) -> float | None:
        """As `before`, at temperature 0."""
        return _first(self.success(0.0))

    @property
    def greedy_after(self) -> float:
        """As `after`, at temperature 0."""
        return self.success(0.0)[-1]

    @property
    def _sampled(self) -> Sequence[float]:
        return self.success(max(one.temperature or 0.0 for one in self.evaluated))

    def success(self, temperature: float) -> Sequence[float]:
        """Of each evaluation at a temperature, in order; none where it was not measured."""
        found = [one for one in self.evaluated if one.temperature == temperature]
        return [one.succeeded / one.graded for one in found]


def by_start(values: Mapping[Key, float]) -> list[float]:
    """The mean over the runs of each start."""
    of: dict[int, list[float]] = {}
    for (start, _), value in sorted(values.items()):
        of.setdefault(start, []).append(value)
    return list(map(_mean, of.values()))


@frozen(kw_only=True)
class Row:
    """One cell."""

    cell: Cell
    runs: Mapping[Key, Numbers]
    """The completed ones."""
    asked: int
    """Runs that it should have."""

    def values(self, of: Callable[[Numbers], float | None]) -> Mapping[Key, float]:
        """Where it is known."""
        return {s: value for s, run in self.runs.items() if (value := of(run)) is not None}

    def mean(self, of: Callable[[Numbers], float | None]) -> Estimate | None:
        """Over starts; bounds between 0 and 1."""
        found = estimate(by_start(self.values(of)))
        return found and found.within(0.0, 1.0)

    def change(self, first: "Row", of: Callable[[Numbers], float | None]) -> Estimate | None:
        """Against another cell, over the starts that both have."""
        found = estimate(self.changes(first, of))
        return found and found.within(-1.0, 1.0)

    def changes(self, first: "Row", of: Callable[[Numbers], float | None]) -> list[float]:
        """The differences to another cell, one per start: runs of one start are no independent
        ones.
        """
        own, others = self.values(of), first.values(of)
        return by_start({key: own[key] - others[key] for key in own if key in others})


@frozen(kw_only=True)
class Table:
    """A grid as far as it has been run."""

    plan: Plan
    rows: Sequence[Row] = field(repr=False)
    rollouts: int | None
    """Training episodes of every run: the same for all, else it is an error."""


Measures = Sequence[tuple[Cell, int, Mapping[Key, Numbers]]]
"""Of each cell: how many runs it should have, and its completed runs."""


def table(plan: Plan, measures: Measures) -> Table:
    """Make the table of a grid.

    Raises:
        InputError: its arms had unequal numbers of rollouts.
    """
    rows = [Row(cell=cell, asked=asked, runs=runs) for cell, asked, runs in measures]
    return Table(plan=plan, rows=rows, rollouts=_equal(plan, rows))


def measure(plan: Plan, grids: Mapping[int, Grid], n_starts: int) -> Measures:
    """Measure the runs of a plan.

    Args:
        grids: by start.
        n_starts: how many there should be.

    Raises:
        InputError: a grid has other cells than its plan, or a run can't be read.
    """
    found: list[dict[Key, Numbers]] = [{} for _ in plan.cells]
    for start, grid in grids.items():
        _check(plan, grid)
        for (number, seed), run in measure_runs(grid).items():
            found[number - 1][start, seed] = run
    asked = n_starts * max(len(grid.seeds) for grid in grids.values())
    return [(cell, asked, runs) for cell, runs in zip(plan.cells, found, strict=True)]


def measure_runs(grid: Grid) -> Mapping[tuple[int, int], Numbers]:
    """The completed runs of a grid, by the number of the cell from 1 and the seed."""
    completed = (run for run in measure_grid(grid) if run.state == "completed")
    return {(run.slot.number, run.slot.seed): _numbers(run) for run in completed}


def _check(plan: Plan, grid: Grid) -> None:
    made = [" ".join(cell.overrides) for cell in grid.cells]
    planned = [" ".join(cell.overrides) for cell in plan.cells]
    if len(made) != len(planned) or not all(map(str.startswith, made, planned)):
        message = "it has other cells than plan.py; give the plan a new name, or delete the folder"
        raise InputError([Problem(message=message, file=str(grid.path))])


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
    steps = list(_metrics(run.path, run.start))
    norms = sorted(norm for step in steps if (norm := step.get("grad_norm")))
    rollouts = sorted(run.rollouts_by_step.items())
    return Numbers(
        training=_training(run.counts),
        peak=norms[-1] / norms[len(norms) // 2] if norms else math.nan,
        masked=_mean([step.get("masked_fraction", 0.0) for step in steps]),
        clamped=_mean([step.get("clamped_fraction", 0.0) for step in steps]),
        clipped=_mean([step.get("clipped_fraction", 0.0) for step in steps]),
        masked_chunks=_known_mean(steps, "masked_chunks_fraction"),
        clamped_chunks=_known_mean(steps, "clamped_chunks_fraction"),
        age=_age(run.path, run.start),
        chunks=_chunks(run.path, run.start),
        rollouts=tuple(n for step, n in rollouts if step >= run.start),
        broken=run.broken,
        seconds=run.seconds,
        evaluated=tuple(_shown(run)),
    )


def _first(evaluations: Sequence[float]) -> float | None:
    """What was measured first, unless it is also what was measured last."""
    return evaluations[0] if len(evaluations) > 1 else None


def _shown(run: Measured) -> Iterator[Evaluated]:
    """The evaluations from where demonstrations ended; of a run of demonstrations alone, all."""
    start = run.start if any(step >= run.start for step in run.rollouts_by_step) else 0
    return (one for one in run.evaluated if one.step >= start)


def _metrics(path: Path, start: int) -> Iterator[Mapping[str, float]]:
    for event in RunReader(path).events():
        if event["event"] == "step_finished" and event["step"] >= start:
            yield event["metrics"]


def _chunks(path: Path, start: int) -> float | None:
    found = [len(one.chunks) for one in RunReader(path).credits() if one.step >= start]
    return _mean(found) if found else None


def _known_mean(steps: Sequence[Mapping[str, float]], metric: str) -> float | None:
    """Over the steps that have it; None where no step does."""
    found = [step[metric] for step in steps if metric in step]
    return _mean(found) if found else None


def _age(path: Path, start: int) -> float | None:
    """A step that made no update, since no group had a signal, made no version either."""
    reader = RunReader(path)
    finished = (event for event in reader.events() if event["event"] == "step_finished")
    updated = [event["step"] for event in finished if event["metrics"].get("updates")]
    ages = [
        sum(step < episode.step for step in updated) - version
        for episode in reader.episodes
        if episode.split == "train" and episode.step >= start
        for turn in episode.trajectory.turns
        if turn.completion.tokens is not None and not turn.completion.forced
        for version in turn.completion.tokens.policy_versions
    ]
    return _mean(ages) if ages else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _training(counts: Mapping[int, tuple[int, int]]) -> float | None:
    steps = sorted(counts)
    last = steps[-math.ceil(_LAST * len(steps)) :]
    graded = sum(counts[step][0] for step in last)
    return sum(counts[step][1] for step in last) / graded if graded else None


def _equal(plan: Plan, rows: Sequence[Row]) -> int | None:
    """Rollouts of an arm's run, where all have the same in every step."""
    found = {
        run.rollouts: f"{row.cell.label}, start and seed {key}"
        for row in rows
        for key, run in row.runs.items()
        if not row.cell.control
    }
    if len(found) > 1:
        each = "; ".join(f"{sum(steps)} in {name}" for steps, name in found.items())
        message = f"the runs of '{plan.name}' have unequal numbers of rollouts: {each}"
        raise InputError([Problem(message=message, file=plan.name)])
    return sum(next(iter(found))) if found else None
