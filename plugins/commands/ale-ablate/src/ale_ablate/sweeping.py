"""Choose one option of every cell by runs of seeds that are not reported."""

import shutil
from collections.abc import Sequence
from statistics import fmean

from attrs import evolve

from ale.errors import InputError
from ale_ablate.comparing import Comparison, Row
from ale_ablate.grid import Cell, Grid, own, read, save, split

FOLDER = "sweep"
_CRITERIA = ("final_success", "greedy_success")
FIRST_SEED = 1000
"""Far above the reported ones, which count from 0."""


def values_of(text: str) -> tuple[str, ...]:
    """``trainer.lr=1e-4,3e-4`` as one override for each value.

    Raises:
        InputError: it is not a key with at least two values, or every run has its own value.
    """
    key, _, rest = text.partition("=")
    if problems := own([key], "--sweep"):
        raise InputError(problems)
    values = split(rest)
    if not key or len(values) < 2 or not all(values) or len(set(values)) < len(values):
        hint = "for example --sweep trainer.lr=1e-4,3e-4,1e-3"
        message = f"expected KEY=VALUE,VALUE,... with values that differ, found '{text}'"
        raise InputError.of(message, file="--sweep", hint=hint)
    return tuple(f"{key}={value}" for value in values)


def swept_cells(cells: Sequence[Cell], values: Sequence[str]) -> tuple[Cell, ...]:
    """Every cell with every value, the values of a cell next to each other."""
    made = [(*cell.overrides, value) for cell in cells for value in values]
    return tuple(Cell.of(number, overrides) for number, overrides in enumerate(made, 1))


def sweep_of(grid: Grid, n_seeds: int) -> Grid:
    """The grid whose runs choose the values of another grid's cells."""
    return evolve(
        grid,
        path=grid.path / FOLDER,
        name=f"{grid.name}-sweep",
        cells=swept_cells(grid.cells, grid.sweep),
        seeds=tuple(range(FIRST_SEED, FIRST_SEED + n_seeds)),
        sweep=(),
        notes=(),
    )


def choose(grid: Grid, swept: Comparison) -> Grid:
    """Give every cell of a grid its best value, and store that.

    Raises:
        InputError: a cell has no completed run.
        StoreError: the folder can't be written.
    """
    n = len(grid.sweep)
    cells = []
    for number, cell in enumerate(grid.cells):
        rows = swept.rows[number * n : (number + 1) * n]
        best = best_of(rows)
        if best is None:
            message = f"no completed run of '{cell.name}' to choose a value by"
            raise InputError.of(message, file=str(swept.grid.path))
        source = swept.grid.config(rows[best].cell)
        shutil.copyfile(source, grid.config(cell))
        chosen = grid.sweep[best]
        name = chosen if cell.name == "as written" else f"{cell.name}, {chosen}"
        cells.append(evolve(cell, name=name, overrides=(*cell.overrides, chosen)))
    measured = {measure.key for measure in swept.measures}
    how = "greedy and final" if measured.issuperset(_CRITERIA) else "final"
    option = grid.sweep[0].partition("=")[0]
    tried = ", ".join(value.partition("=")[2] for value in grid.sweep)
    seeds = ", ".join(map(str, swept.grid.seeds))
    note = (
        f"each cell's {option} was chosen from {tried} by the highest mean {how} success of the "
        f"seeds {seeds}, which are in no other number: {FOLDER}/report.html"
    )
    done = evolve(grid, cells=tuple(cells), sweep=(), notes=(*grid.notes, note))
    save(done)
    return read(grid.path)


def best_of(rows: Sequence[Row]) -> int | None:
    """The place of the row with the highest success, of equal ones the first; None without runs.

    Where greedy success was measured, it is the mean of that and of the final success: greedy
    success alone is soon the same for several values.
    """
    scores = [_score(row) for row in rows]
    known = [score for score in scores if score is not None]
    return scores.index(max(known)) if known else None


def _score(row: Row) -> float | None:
    means = [row.means[key] for key in _CRITERIA if key in row.means]
    known = [mean.mean for mean in means if mean is not None]
    # Rounded, so that an error of rounding decides nothing between equal ones.
    return round(fmean(known), 9) if len(known) == len(means) else None
