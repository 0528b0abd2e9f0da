"""The study compares what it says it compares: its cells are valid, its runs of one length."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ale.errors import InputError

ROOT = Path(__file__).parents[2]
MODULES = ("plan", "measured", "pages", "study")


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "study"))
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


def row(study: dict[str, ModuleType], label: str, *steps: tuple[int, ...], after: float) -> Any:
    """A cell whose runs had so many rollouts in each step."""
    runs = {
        seed: study["measured"].Numbers(
            before=0.1,
            after=after + 0.01 * seed,
            training=None,
            peak=2.0,
            masked=0.0,
            rollouts=rollouts,
            broken=0,
            seconds=1.0,
        )
        for seed, rollouts in enumerate(steps)
    }
    return study["measured"].Row(cell=study["plan"].Cell(label, ()), runs=runs, asked=5)


def test_runs_with_other_numbers_of_rollouts_are_not_compared(
    study: dict[str, ModuleType],
) -> None:
    plan = study["plan"].OBJECTIVES
    one = row(study, "one", (8, 8), (8, 8), after=0.2)
    assert study["measured"]._equal(plan, [one]) == 16
    # As many in all, but not in each step.
    other = row(study, "other", (8, 8), (4, 12), after=0.3)
    with pytest.raises(InputError, match=r"unequal numbers of rollouts.*16 in other, seed 1"):
        study["measured"]._equal(plan, [one, other])


def test_a_table_says_how_many_seeds_there_are_and_what_differs(
    study: dict[str, ModuleType],
) -> None:
    rows = [
        row(study, "one", (8,), (8,), (8,), after=0.2),
        row(study, "other", (8,), (8,), after=0.5),
    ]
    table = study["measured"].Table(plan=study["plan"].OBJECTIVES, rows=rows, rollouts=8)
    first, second = list(study["pages"].markdown(table))[2:4]
    assert first.startswith("| one | 3 of 5 | 10.0% | 21.0% (18.5 to 23.5) |  |")
    # Seed by seed: both have risen alike, so that the difference has no spread.
    assert "| other | 2 of 5 |" in second
    assert "| +30.0 (+30.0 to +30.0) |" in second
    drawn = study["pages"].picture(table)
    assert drawn.count('class="seed"') == 5
    assert drawn.count('class="mean"') == 2


def test_every_table_of_the_study_has_its_place_in_the_page(study: dict[str, ModuleType]) -> None:
    page = (ROOT / "docs" / "study.md").read_text()
    for plan in study["plan"].PLANS:
        assert page.count(f"<!-- table {plan.name} -->") == 1, plan.name


@pytest.mark.parametrize(("outcome", "completed"), [("completed", True), ("interrupted", False)])
def test_a_warm_start_that_was_interrupted_is_not_taken_for_a_whole_one(
    study: dict[str, ModuleType], tmp_path: Path, outcome: str, completed: bool
) -> None:
    manifest = {
        "schema": 1,
        "run_id": "warm",
        "config": {"chunker": {"type": "interaction"}},
        "n_tasks": 1,
        "outcome": {"outcome": outcome, "seconds": 1.0},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert study["study"].is_completed(tmp_path) is completed


def test_tables_go_between_their_marks_and_a_table_without_a_place_is_an_error(
    study: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "study.md"
    page.write_text("Before.\n\n<!-- table objectives -->\nold\n<!-- end -->\n\nAfter.\n")
    monkeypatch.setattr(study["study"], "PAGE", page)
    rows = [row(study, "one", (8,), (8,), after=0.2)]
    made = [
        study["measured"].Table(plan=study["plan"].OBJECTIVES, rows=rows, rollouts=8),
        study["measured"].Table(plan=study["plan"].STALE, rows=rows, rollouts=8),
    ]
    study["study"]._write(made[:1])
    lines = page.read_text().splitlines()
    assert lines[:3] == ["Before.", "", "<!-- table objectives -->"]
    assert lines[5].startswith("| one | 2 of 5 |")
    assert lines[-3:] == ["<!-- end -->", "", "After."]
    assert (tmp_path / "study" / "objectives.svg").read_text().startswith("<svg")
    with pytest.raises(InputError, match="no place for the table 'stale'"):
        study["study"]._write(made)


@pytest.mark.long
def test_every_cell_of_the_study_is_valid(study: dict[str, ModuleType], workshop: Any) -> None:
    for plan in study["plan"].PLANS:
        config = str(ROOT / "configs" / "study" / f"{plan.config}.yaml")
        cells = [part for cell in plan.cells for part in ("--cell", "; ".join(cell.overrides))]
        done = workshop.ale("ablate", config, *cells, "--dry-run", timeout_s=600)
        assert done.code == 0, done.text
        assert f"{len(plan.cells)} cell(s) x 5 seed(s)" in done.text
