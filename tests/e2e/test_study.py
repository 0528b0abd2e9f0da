"""The study compares what it says it compares: its cells are valid, its runs of one length."""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from ale.errors import InputError

ROOT = Path(__file__).parents[2]
MODULES = ("plan", "measured", "data", "pages", "study")
NO_DATA = "*From runs of an earlier version whose data was not kept.*"


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
            clamped=0.0,
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
    # Of two seeds all four choices of signs are equal or opposite: p = 2 / 4.
    assert "| +30.0 (+30.0 to +30.0), p 0.5 |" in second
    drawn = study["pages"].picture(table)
    assert drawn.count('class="seed"') == 5
    assert drawn.count('class="mean"') == 2


def test_every_table_of_the_page_is_made_from_the_data_in_the_repository(
    study: dict[str, ModuleType],
) -> None:
    page = (ROOT / "docs" / "study.md").read_text()
    plans = study["plan"].PLANS
    stored = study["data"].read(ROOT / "docs" / "study", plans)
    made = {each.plan.name: each for each in study["study"]._tables(stored)}
    for plan in plans:
        begin = f"<!-- table {plan.name} -->\n"
        assert page.count(begin) == 1, plan.name
        shown = page.partition(begin)[2].partition("<!-- end -->")[0]
        if plan.name in made:
            assert shown == "\n".join(study["pages"].markdown(made[plan.name])) + "\n", plan.name
            drawn = (ROOT / "docs" / "study" / f"{plan.name}.svg").read_text()
            assert drawn == study["pages"].picture(made[plan.name]), plan.name
        else:
            assert NO_DATA in shown, f"the table '{plan.name}' has no data and does not say so"


def test_the_data_gives_the_same_table_as_the_runs(
    study: dict[str, ModuleType], tmp_path: Path
) -> None:
    plan = study["plan"].STARTS
    measured = [
        (cell, 5, {seed: numbers(study, 0.1 * n + 0.01 * seed, greedy=0.2) for seed in range(6)})
        for n, cell in enumerate(plan.cells)
    ]
    study["data"].write(tmp_path, {plan.name: measured})
    again = study["data"].read(tmp_path, study["plan"].PLANS)
    assert again == {plan.name: measured}
    lines = {
        "\n".join(study["pages"].markdown(study["measured"].table(plan, of, None)))
        for of in (measured, again[plan.name])
    }
    (text,) = lines
    assert "| greedy before | greedy after | against the first, greedy |" in text
    # Six seeds each 10 points better: p = 2 / 64, by Holm twice that for two comparisons.
    assert "+10.0 (+10.0 to +10.0), p 0.062 |" in text


def numbers(study: dict[str, ModuleType], after: float, *, greedy: float) -> Any:
    def evaluated(step: int, temperature: float | None, success: float) -> Any:
        counts = {"graded": 1000, "succeeded": round(1000 * success), "broken": 0}
        return study["measured"].Evaluated(
            step=step, temperature=temperature, repeats=None, **counts
        )

    evaluations = [
        evaluated(step, at, success)
        for step, sampled in ((0, 0.1), (12, after))
        for at, success in ((0.0, greedy), (None, sampled))
    ]
    return study["measured"].Numbers(
        before=0.1,
        after=round(1000 * after) / 1000,
        training=0.3,
        peak=2.5,
        masked=0.0,
        clamped=0.25,
        rollouts=(40,) * 12 + (8,),
        broken=1,
        seconds=12.5,
        greedy_before=greedy,
        greedy_after=greedy,
        evaluated=tuple(evaluations),
    )


def test_a_study_says_in_advance_what_it_will_take_and_leaves_out_what_is_too_long(
    study: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """15 runs of an hour by two at a time: 7.5 hours; of two hours: 15, more than 8."""
    plan, module = study["plan"].STARTS, study["study"]
    monkeypatch.setattr(module, "PAGE", tmp_path / "study.md")
    asked = argparse.Namespace(seeds=5, jobs=2, long=False)

    def affordable(seconds: float) -> list[Any]:
        run = attrs.evolve(numbers(study, 0.5, greedy=0.2), seconds=seconds)
        cells = [(cell, 5, {0: run}) for cell in plan.cells]
        study["data"].write(tmp_path / "study", {plan.name: cells})
        return list(module._affordable([plan], tmp_path / "runs", asked))

    assert affordable(3600.0) == [plan]
    assert "starts: 15 runs missing, about 7 h 30 min\n" in capsys.readouterr().out
    assert affordable(7200.0) == []
    assert "about 15 h 0 min; left out, --long runs it" in capsys.readouterr().out
    asked.long = True
    assert affordable(7200.0) == [plan]
    objectives = study["plan"].OBJECTIVES
    # Six cells of five seeds, and of each three rates with two.
    assert module.missing(objectives, tmp_path / "runs", 5) == (6 * 5 + 6 * 3 * 2, None)


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
        assert f"{len(plan.cells)} cells x 5 seeds" in done.text
