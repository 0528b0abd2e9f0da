"""How well each value of a sweep did, and which one each cell was given: a CSV file and a table."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import mean

from attrs import astuple, fields, frozen
from measured import Numbers
from plan import Plan

from ale_ablate.grid import Grid, read
from ale_ablate.sweeping import FOLDER

FILE = "sweep.csv"


@frozen(kw_only=True)
class Tried:
    """One run of a sweep."""

    grid: str
    cell: str
    value: str
    seed: int
    greedy: float
    """Success at temperature 0 after the last step."""
    after: float
    """The same at the temperature of training."""
    chosen: bool
    """Was the cell given this value?"""


def tried(plan: Plan, grid: Grid, runs: Mapping[tuple[int, int], Numbers]) -> Iterator[Tried]:
    """The runs of a grid's sweep.

    Args:
        runs: the completed ones, by the number of the sweep's cell from 1 and the seed.
    """
    cells = read(grid.path / FOLDER).cells
    n = len(cells) // len(grid.cells)
    for (number, seed), run in sorted(runs.items()):
        place, value = (number - 1) // n, cells[number - 1].overrides[-1]
        yield Tried(
            grid=plan.name,
            cell=plan.cells[place].label,
            value=value,
            seed=seed,
            greedy=run.greedy_after,
            after=run.after,
            chosen=value in grid.cells[place].overrides,
        )


def write(path: Path, lines: Sequence[Tried]) -> None:
    """Write the file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(each.name for each in fields(Tried))
        writer.writerows(astuple(line) for line in lines)


def stored(path: Path) -> list[Tried]:
    """What `write` has written; nothing where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Tried(
                grid=line["grid"],
                cell=line["cell"],
                value=line["value"],
                seed=int(line["seed"]),
                greedy=float(line["greedy"]),
                after=float(line["after"]),
                chosen=line["chosen"] == "True",
            )
            for line in csv.DictReader(file)
        ]


def added(known: Sequence[Tried], found: Sequence[Tried]) -> list[Tried]:
    """Both, but of a grid that was found again only what was found."""
    again = {line.grid for line in found}
    return [*(line for line in known if line.grid not in again), *found]


def markdown(lines: Sequence[Tried]) -> Iterator[str]:
    """The table of one grid: mean success of both temperatures, the chosen value's in bold."""
    values = list(dict.fromkeys(line.value for line in lines))
    option = values[0].partition("=")[0]
    yield f"| {option} | {' | '.join(value.partition('=')[2] for value in values)} |"
    yield f"|---|{'---:|' * len(values)}"
    for cell, of in groupby(lines, lambda line: line.cell):
        runs = list(of)
        texts = [_text([run for run in runs if run.value == value]) for value in values]
        yield f"| {cell} | {' | '.join(texts)} |"


def _text(runs: Sequence[Tried]) -> str:
    if not runs:
        return "-"
    text = f"{mean((run.greedy + run.after) / 2 for run in runs):.1%}"
    return f"**{text}**" if runs[0].chosen else text
