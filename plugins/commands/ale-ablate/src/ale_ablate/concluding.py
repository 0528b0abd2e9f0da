"""Write the results of a grid: tables and page."""

from ale.files import write_whole
from ale_ablate.comparing import Comparison, compare
from ale_ablate.grid import Grid
from ale_ablate.measuring import measure_grid
from ale_ablate.notes import stored_notes
from ale_ablate.page import page
from ale_ablate.tables import (
    comma_separated,
    evaluations_comma_separated,
    markdown,
    runs_comma_separated,
)


def conclude(grid: Grid) -> Comparison:
    """Read every run of a grid, and write the tables and the page into its folder.

    Raises:
        InputError: a stored run is damaged.
        StoreError: the folder can't be written.
    """
    comparison = compare(grid, measure_grid(grid), stored_notes(grid))
    made = {
        "table.md": markdown(comparison),
        "table.csv": comma_separated(comparison),
        "runs.csv": runs_comma_separated(comparison),
        "evaluations.csv": evaluations_comma_separated(comparison),
        "report.html": "".join(page(comparison)),
    }
    for name, text in made.items():
        write_whole(grid.path / name, text)
    return comparison
