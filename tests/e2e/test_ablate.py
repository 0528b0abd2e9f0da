"""`ale ablate` with real parts: the examples of its help are run as they are printed."""

import shlex
from typing import Any

FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}


def test_the_examples_of_the_help_are_accepted(workshop: Any) -> None:
    workshop.task("one")
    workshop.scripted({"tasks": {"one": [[FINISH]]}}).rename(workshop.folder / "my.yaml")
    lines = [line.strip() for line in workshop.ale("ablate", "--help").out.splitlines()]
    examples = [shlex.split(line)[1:] for line in lines if line.startswith("ale ablate my.yaml")]
    assert len(examples) == 2
    grid, cells = (workshop.ale(*each, "--dry-run") for each in examples)
    assert (grid.code, cells.code) == (0, 0), grid.err + cells.err
    # gamma is an option of ipa alone: grpo is one cell.
    assert "3 cells x 5 seeds: 15 runs" in grid.out
    assert "2 cells x 5 seeds: 10 runs" in cells.out
