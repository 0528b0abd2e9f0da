"""The tables and pictures of the study are what its stored data say, and its tests count starts."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("data", "learning", "measured", "pages", "plan", "study", "sweeps")


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "study"))
    yield import_module("study")
    for name in MODULES:
        sys.modules.pop(name, None)


def test_pages_have_what_the_stored_data_say(study: Any) -> None:
    tables = list(study._tables(study.data.read(study.DATA, study.PLANS)))
    assert tables
    swept = study.sweeps.stored(study.DATA / study.sweeps.FILE)
    for path, text in study.pages(tables, swept).items():
        shown = path.relative_to(ROOT)
        assert text == path.read_text(), f"python3 noxfile.py -s study -- --collect --docs: {shown}"


def run(*rates: float) -> Any:
    """A run with these success rates after 0, 2, 4, ... steps, of 100 tasks."""
    measured = import_module("measured")
    evaluated = [
        measured.Evaluated(
            step=2 * k,
            temperature=1.0,
            graded=100,
            succeeded=round(100 * rate),
            broken=0,
            repeats=None,
        )
        for k, rate in enumerate(rates)
    ]
    nothing = dict.fromkeys(("masked", "clamped", "clipped", "peak"), 0.0)
    unknown = dict.fromkeys(
        ("training", "masked_chunks", "clamped_chunks", "age", "chunks", "seconds")
    )
    return measured.Numbers(
        **nothing, **unknown, rollouts=(64,), broken=0, evaluated=tuple(evaluated)
    )


@pytest.fixture
def table(study: Any) -> Any:
    """Two cells with three runs of two starts; the second cell is faster and ends alike."""
    measured = import_module("measured")
    slow, fast = (0.0, 0.0, 1.0), (0.0, 1.0, 1.0)
    plan = study.Plan(name="made", title="", config="", cells=(), contrasts=(("fast", "slow"),))
    keys = [(0, 0), (0, 1), (1, 0)]
    rows = [
        measured.Row(
            cell=measured.Cell(name, ()),
            runs={key: run(*rates) for key in keys},
            asked=4,
        )
        for name, rates in (("slow", slow), ("fast", fast))
    ]
    return study.Table(plan=plan, rows=rows, rollouts=None)


def test_the_area_shows_speed_that_the_end_hides(study: Any, table: Any) -> None:
    lines = list(study.learning.markdown(table))
    assert lines[0] == "| cell | starts | 0 | 2 | 4 | area | against the first |"
    assert lines[2].startswith("| slow | 2 | 0.0% | 0.0% | 100.0% | 25.0%")
    assert lines[3].startswith("| fast | 2 | 0.0% | 100.0% | 100.0% | 75.0%")


def test_runs_of_one_start_are_one_observation(study: Any, table: Any) -> None:
    found = study.learning.contrast(table, "fast", "slow")
    assert found.differences == pytest.approx([0.5, 0.5])
    assert found.p == 0.5  # of two starts; three runs would have 0.25
    changes = table.rows[1].changes(table.rows[0], lambda one: one.success(1.0)[1])
    assert changes == pytest.approx([1.0, 1.0])
    assert "| fast - slow | 2 | +50.0" in "\n".join(study.learning.primary(table))


def test_a_start_of_a_fixed_plan_counts_when_each_cell_is_done(study: Any) -> None:
    plan = study.Plan(name="made", title="", config="", cells=(), fixed=True)
    one = run(0.0, 1.0)
    measures = [(None, 2, {(5, 0): one, (6, 0): one}), (None, 2, {(5, 0): one})]
    whole = study._whole(plan, measures)
    assert [list(runs) for _, _, runs in whole] == [[(5, 0)], [(5, 0)]]
