"""One option of each cell is chosen by seeds of its own, and a grid says how long it will take."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.errors import InputError
from ale.runs import RunReader
from ale_ablate.forecast import by_first_steps, seconds_left, whole_seconds
from ale_ablate.grid import Cell, Grid, Slot, read
from ale_ablate.sweeping import best_of, sweep_of, values_of


def test_each_cell_gets_the_value_that_was_best_by_other_seeds(workshop: Any) -> None:
    config = workshop.config(evaluation={"tasks": {"type": "few", "number": 2}, "every": 1})
    arguments = ("--vary", "tasks.number=1,2", "--sweep", "agent.skill=0.0,1.0")
    ended = workshop.ablate(config, *arguments, "--sweep-seeds", "1", "--seeds", "1", "--jobs", "2")
    assert ended.code == 0, ended.err + ended.out
    assert "4 runs in" in ended.err
    assert "done: 2 of 2 runs completed" in ended.out
    path = workshop.folder / ended.grid
    grid = read(path)
    assert [cell.name for cell in grid.cells] == [
        "tasks.number=1, agent.skill=1.0",
        "tasks.number=2, agent.skill=1.0",
    ]
    seeds = {
        folder.parent.name: RunReader(folder).manifest["seed"]
        for folder in sorted(p.parent for p in path.glob("**/seed-*/*/manifest.json"))
    }
    assert {*seeds.values()} == {0, 1000}
    for run in path.glob("cells/*/seed-0/*/manifest.json"):
        assert json.loads(run.read_text())["config"]["agent"]["skill"] == 1.0
    note = "each cell's agent.skill was chosen from 0.0, 1.0 by the highest mean final success"
    assert note in " ".join(ended.out.split())
    assert note[1:].replace("'", "&#39;") in (path / "report.html").read_text()
    assert (path / "sweep" / "report.html").exists()
    again = workshop.ablate("--resume", path)
    assert again.code == 0, again.err
    assert "2 of 2 runs already completed" in again.err


def test_a_dry_run_says_what_the_sweep_takes(workshop: Any) -> None:
    arguments = ("--sweep", "agent.skill=0.0,0.5,1.0", "--dry-run")
    ended = workshop.ablate(workshop.config(), *arguments)
    assert ended.code == 0, ended.err
    assert "before: 6 runs of the seeds 1000, 1001 choose each cell's value" in ended.out


def test_a_sweep_and_controls_are_two_calls(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(), "--controls", "--sweep", "agent.skill=0,1")
    assert ended.code == 2
    assert "sweep first, then give the chosen value with --set" in ended.err


@pytest.mark.parametrize("text", ["a", "a=1", "=1,2", "a=1,1", "a=1,,2"])
def test_a_sweep_needs_values_that_differ(text: str) -> None:
    with pytest.raises(InputError, match=r"--sweep: expected KEY=VALUE,VALUE"):
        values_of(text)


def grid_of(*seeds: int) -> Grid:
    return Grid(
        path=Path("/grid"),
        name="g",
        created="now",
        source="g.yaml",
        overrides=(),
        cells=(Cell.of(1, ["a=1"]), Cell.of(2, ["a=2"])),
        seeds=seeds,
        versions={},
        sweep=("b=1", "b=2"),
    )


def test_a_sweep_has_every_cell_with_every_value_and_no_reported_seed() -> None:
    swept = sweep_of(grid_of(0, 1, 2), 2)
    assert [cell.overrides for cell in swept.cells] == [
        ("a=1", "b=1"),
        ("a=1", "b=2"),
        ("a=2", "b=1"),
        ("a=2", "b=2"),
    ]
    assert swept.seeds == (1000, 1001)


def test_the_best_value_is_that_of_both_greedy_and_final_success(compared: Any) -> None:
    curves = {"b=1": [[0.1, 0.5]], "b=2": [[0.1, 0.8]], "b=3": [[0.1, 0.8]]}
    assert best_of(compared(curves, greedy=1.0).rows) == 1
    equal = {"b=1": [[0.1, 0.3]], "b=2": [[0.1, 0.1 + 0.2]], "b=3": [[0.1, 0.2]]}
    assert best_of(compared(equal).rows) == 0, "an error of rounding decides nothing"
    assert best_of(compared({"b=1": [[]], "b=2": [[0.1, 0.5]]}).rows[:1]) is None


def test_what_is_left_is_that_of_each_cell_over_the_jobs() -> None:
    """Two runs of 10 s and two of 40 s: 100 s one by one; side by side at least 50 s."""
    slots = list(grid_of(0, 1).slots())
    assert seconds_left(slots, {1: 10.0, 2: 40.0}, 1) == 100.0
    assert seconds_left(slots, {1: 10.0, 2: 40.0}, 2) == 50.0
    assert seconds_left(slots, {1: 10.0, 2: 40.0}, 9) == 40.0
    assert seconds_left(slots, {1: 10.0}, 1) == 40.0, "an unknown cell is like the others"
    assert seconds_left(slots, {}, 1) is None


def resumed_run(folder: Path, outcome: str) -> Slot:
    """A run of six steps at 2 s each, which was resumed after a pause of 1000 s."""
    slot = next(evolve(grid_of(0), path=folder).slots())
    path = slot.folder / "run"
    path.mkdir(parents=True)
    ended = {"outcome": outcome, "seconds": 8.0}
    config = {"run": {"steps": 6}, "chunker": {"type": "turns"}}
    manifest = {"schema": 1, "run_id": "run", "n_tasks": 1, "config": config, "outcome": ended}
    (path / "manifest.json").write_text(json.dumps(manifest))
    events = [
        ("run_started", 0.0),
        ("step_finished", 2.0),
        ("step_finished", 4.0),
        ("run_finished", 4.0),
        ("run_resumed", 1004.0),
        ("step_finished", 1006.0),
        ("step_finished", 1008.0),
        ("run_finished", 1008.0),
    ]
    lines = [json.dumps({"event": name, "at": at, "step": 0}) + "\n" for name, at in events]
    (path / "events.jsonl").write_text("".join(lines))
    return slot


def test_the_time_between_two_sessions_of_a_run_is_not_part_of_its_steps(tmp_path: Path) -> None:
    assert by_first_steps(resumed_run(tmp_path, "drained")) == (12.0, 4)


def test_a_resumed_run_took_all_its_sessions(tmp_path: Path) -> None:
    slot = resumed_run(tmp_path, "completed")
    assert whole_seconds(slot, 4.5, resumed=True) == 8.0
    assert whole_seconds(slot, 4.5, resumed=False) == 4.5


def test_a_grid_says_what_is_left_from_stored_runs_and_after_each_run(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(), "--seeds", "2")
    assert ended.code == 0, ended.err
    assert ended.err.count(" left") == 1, "after the last run nothing is left"
    grid = workshop.folder / ended.grid
    (manifest,) = grid.glob("cells/*/seed-1/*/manifest.json")
    manifest.unlink()
    again = workshop.ablate("--resume", grid)
    assert " in all, as the completed runs took" in again.err


def test_the_first_steps_of_a_grid_say_how_long_it_will_take(workshop: Any) -> None:
    learns = {"type": "teacher"}
    config = workshop.config(
        llm={"type": "pupil"},
        trainer=learns,
        run={"steps": 6},
    )
    cell = "agent={type: lucky, seconds: 0.8}"
    running = workshop.start(config, "--cell", cell, "--seeds", "2")
    running.says("in all, by the first ")
    running.says(cell)
    assert running.ended().code == 0
