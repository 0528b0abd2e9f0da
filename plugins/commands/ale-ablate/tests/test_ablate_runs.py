"""`ale ablate` with real processes: kill -9, Ctrl-C, failing runs, bad input."""

import csv
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.runs import RunReader


def runs(grid: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (grid / "runs.csv").open() as file:
        return {(row["cell"], row["seed"]): row for row in csv.DictReader(file)}


def directories(grid: Path) -> list[Path]:
    return sorted(path.parent for path in grid.glob("cells/*/seed-*/*/manifest.json"))


def episodes(grid: Path) -> list[list[str]]:
    """The ids in every run, in the order of their writing."""
    return [[episode.id for episode in RunReader(path).episodes] for path in directories(grid)]


def holders(grid: Path) -> Sequence[int]:
    """The processes that write the runs of this grid."""
    found = [int(path.read_text() or 0) for path in grid.glob("cells/*/seed-*/*/.lock")]
    return [pid for pid in found if pid and Path(f"/proc/{pid}").exists()]


def test_every_cell_is_run_with_every_seed_and_compared(workshop: Any) -> None:
    config = workshop.config(evaluation={"tasks": {"type": "few", "number": 3}, "every": 1})
    ended = workshop.ablate(config, "--vary", "agent.skill=0.0,1.0", "--seeds", "2", "--jobs", "2")
    assert ended.code == 0, ended.err
    assert "done: 4 of 4 runs completed" in ended.out
    assert "held-out tasks in the last evaluation" in ended.out
    grid = workshop.folder / ended.grid
    rows = runs(grid)
    assert {*rows} == {(f"agent.skill={v}", s) for v in ("0.0", "1.0") for s in ("0", "1")}
    for (cell, seed), row in rows.items():
        run = RunReader(grid / row["run"])
        assert run.manifest["seed"] == int(seed)
        assert run.manifest["config"]["agent"]["skill"] == float(cell.rpartition("=")[2])
        assert float(row["final_success"]) == float(cell.rpartition("=")[2])
        assert (row["rollouts"], row["state"]) == ("4.0", "completed")
    row = next(line for line in ended.out.splitlines() if line.startswith("agent.skill=1.0"))
    assert row.split()[:5] == ["agent.skill=1.0", "2", "of", "2", "100.0%"]
    assert (grid / "table.md").read_text().startswith("# study: 4 of 4 runs completed\n")


def test_a_variable_overrides_the_config_but_not_what_the_cells_vary(workshop: Any) -> None:
    variables = {"ALE_AGENT__SKILL": "0.5", "ALE_RUN__ROLLOUTS": "3"}
    workshop = evolve(workshop, environ={**workshop.environ, **variables})
    ended = workshop.ablate(workshop.config(), "--vary", "agent.skill=0.0,1.0", "--seeds", "1")
    assert ended.code == 0, ended.err
    found = [
        RunReader(path).manifest["config"] for path in directories(workshop.folder / ended.grid)
    ]
    assert [config["agent"]["skill"] for config in found] == [0.0, 1.0]
    assert [config["run"]["rollouts"] for config in found] == [3, 3]


def test_all_problems_are_reported_before_anything_starts(workshop: Any) -> None:
    ended = workshop.ablate(
        workshop.config(),
        *("--vary", "agent.type=lucky,luky", "--vary", "agent.skil=1", "--set", "run.rollouts=0"),
    )
    assert ended.code == 2
    assert "--vary: agent.type: no agent 'luky'" in ended.err
    assert "--set: run.rollouts" in ended.err
    assert "(in the cell agent.type=luky, agent.skil=1)" in ended.err
    assert "did you mean 'skill'?" in ended.err
    assert ended.err.count("run.rollouts") == 1
    assert "3 problems; nothing was started." in ended.err
    assert not (workshop.folder / "runs").exists()
    within = ("--vary", "agent.skil.level=1", "--set", "agnt.skill=2")
    ended = workshop.ablate(workshop.config(), *within)
    assert "--vary: agent.skil: unknown option" in ended.err
    assert "--set: agnt: unknown section" in ended.err
    seeded = workshop.ablate(workshop.config(), "--set", "run.seed=1")
    assert (seeded.code, "every run has its own seed" in seeded.err) == (2, True)


def test_a_dry_run_prints_the_plan_and_starts_nothing(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(), "--vary", "tasks.number=1,3", "--dry-run")
    assert ended.code == 0
    assert "2 cells x 5 seeds: 10 runs, 40 episodes" in ended.out
    assert not (workshop.folder / "runs").exists()


def test_credit_compared_without_a_trainer_is_reported_as_without_effect(workshop: Any) -> None:
    note = "no cell has a trainer: nothing is trained, so credit and chunker have no effect"
    vary = ("--vary", "credit.type=same,alike", "--seeds", "1")
    assert note in workshop.ablate(workshop.config(), *vary, "--dry-run").out
    ended = workshop.ablate(workshop.config(), *vary)
    assert ended.code == 0, ended.err
    assert note in ended.err
    assert note in " ".join(ended.out.split())
    grid = workshop.folder / ended.grid
    assert note[1:] in (grid / "report.html").read_text()
    assert note in (grid / "table.md").read_text()
    other = workshop.ablate(workshop.config(), "--vary", "agent.skill=0,1", "--dry-run")
    assert "note:" not in other.out


def test_a_failing_cell_is_reported_and_the_others_continue(workshop: Any) -> None:
    config = workshop.config()
    ended = workshop.ablate(config, "--vary", "credit.type=failing,same", "--seeds", "1")
    assert ended.code == 1
    message = "failed: credit.type=failing, seed 0 (status 1): AleError: no credit <today> & never"
    assert message in ended.out
    assert "incomplete: 1 of 2 runs completed" in ended.out
    assert f"next\n  ale ablate --resume {ended.grid}" in ended.out
    grid = workshop.folder / ended.grid
    states = {cell: row["state"] for (cell, _), row in runs(grid).items()}
    assert states == {"credit.type=failing": "unfinished", "credit.type=same": "completed"}
    again = workshop.ablate("--resume", grid)
    assert (again.code, "1 of 2 runs already completed" in again.err) == (1, True)
    assert len(directories(grid)) == 2


def test_a_run_that_stops_itself_is_reported_with_its_cause(workshop: Any) -> None:
    config = workshop.config(agent={"type": "breaking", "skill": 0}, run={"stop_after_broken": 2})
    ended = workshop.ablate(config, "--seeds", "1")
    assert ended.code == 1
    cause = "the first episodes all broke: agent: SandboxError: the machine is gone"
    assert f"failed: as written, seed 0 (status 3): {cause}\n" in ended.out
    assert f"FAILED, exit status 3: {cause}\n" in ended.err


def test_broken_episodes_make_the_status_3(workshop: Any) -> None:
    config = workshop.config(tasks={"type": "few", "number": 4})
    ended = workshop.ablate(config, "--vary", "agent.type=breaking", "--seeds", "1")
    assert ended.code == 3
    assert "done: 1 of 1 run completed\n  broken episodes:" in ended.out
    (row,) = runs(workshop.folder / ended.grid).values()
    assert 0 < int(row["broken"]) < 8
    assert row["rollouts"] == "8.0"


def test_the_cells_whose_episodes_broke_are_named_beside_their_success(workshop: Any) -> None:
    config = workshop.config(tasks={"type": "few", "number": 4}, run={"stop_after_broken": None})
    ended = workshop.ablate(config, "--vary", "agent.type=lucky,breaking", "--seeds", "2")
    grid = workshop.folder / ended.grid
    broken = sum(int(row["broken"]) for row in runs(grid).values())
    assert 0 < broken < 16
    note = f"success is that of the others: {broken} of 16 in agent.type=breaking"
    assert note in " ".join(ended.out.split())
    assert note in (grid / "table.md").read_text()
    assert note in (grid / "report.html").read_text()


def test_a_killed_grid_ends_its_runs_and_resumes_exactly(workshop: Any) -> None:
    config = workshop.config(
        tasks={"type": "few", "number": 5}, agent={"type": "lucky", "seconds": 0.1}
    )
    running = workshop.start(config, "--vary", "agent.skill=1.0,0.5", "--seeds", "2")
    # In the second run, so that one is complete.
    running.says("[2/4]")
    running.wait_for(lambda: len([ids for ids in episodes(workshop.grid()) if ids]) == 2)
    running.process.kill()
    running.process.wait()
    grid = workshop.grid()
    running.wait_for(lambda: not holders(grid))
    finished = directories(grid)[0]
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    kept = episodes(grid)
    assert sum(map(len, kept)) < 40

    config.write_text("what it says now is no matter")
    again = workshop.ablate("--resume", grid)
    assert again.code == 0, again.err
    assert "1 of 4 runs already completed" in again.err
    assert " (resumed)" in again.err
    assert {path: path.read_bytes() for path in before} == before
    found = episodes(grid)
    assert [len(ids) for ids in found] == [10] * 4
    assert all(len({*ids}) == 10 for ids in found)
    assert any(0 < len(ids) < 10 and ids in [new[: len(ids)] for new in found] for ids in kept)


def test_a_killed_run_fails_alone_and_is_resumed(workshop: Any) -> None:
    gate = workshop.folder / "gate"
    config = workshop.config(agent={"type": "lucky", "wait_for": str(gate)})
    running = workshop.start(config, "--vary", "agent.skill=1.0,0.5", "--seeds", "1")
    grid = running.wait_for(workshop.grid)
    events = "cells/*/seed-*/*/events.jsonl"
    running.wait_for(lambda: [path for path in grid.glob(events) if path.read_text()])
    (pid,) = running.wait_for(lambda: holders(grid))
    os.kill(pid, signal.SIGKILL)
    running.says("killed by signal 9")
    gate.touch()
    ended = running.ended()
    assert ended.code == 1
    assert "incomplete: 1 of 2 runs completed" in ended.out
    again = workshop.ablate("--resume", grid, "-n", "1", "--jobs", "2")
    assert again.code == 0, again.err
    rows = runs(grid)
    assert [row["state"] for row in rows.values()] == ["completed"] * 2
    # Nobody knows how long the killed one took.
    assert [row["seconds"] == "" for row in rows.values()] == [True, False]


def test_ctrl_c_finishes_running_episodes_and_prints_how_to_resume(workshop: Any) -> None:
    gate = workshop.folder / "gate"
    config = workshop.config(
        tasks={"type": "few", "number": 5}, agent={"type": "lucky", "wait_for": str(gate)}
    )
    running = workshop.start(config, "--vary", "agent.skill=1.0,0.5", "--seeds", "1")
    grid = running.wait_for(workshop.grid)
    running.wait_for(lambda: holders(grid))
    running.wait_for(lambda: list((workshop.folder / "tmp").iterdir()))  # sandboxes are open
    running.signal(signal.SIGINT)
    running.says("Finishing the running episodes; press Ctrl-C again to cancel them.")
    gate.touch()
    ended = running.ended()
    assert ended.code == 130
    assert "interrupted: 0 of 2 runs completed" in ended.out
    assert f"ale ablate --resume runs/{grid.name}" in ended.out
    (ids,) = episodes(grid)
    assert 0 < len(ids) < 10
    again = workshop.ablate("--resume", grid)
    assert again.code == 0, again.err
    assert [len(ids) for ids in episodes(grid)] == [10, 10]


def test_a_second_ctrl_c_cancels(workshop: Any) -> None:
    config = workshop.config(agent={"type": "lucky", "wait_for": str(workshop.folder / "never")})
    running = workshop.start(config, "--seeds", "2", "--jobs", "2")
    grid = running.wait_for(workshop.grid)
    running.wait_for(lambda: len(holders(grid)) == 2)
    running.wait_for(lambda: len(list((workshop.folder / "tmp").iterdir())) >= 2)
    running.signal(signal.SIGINT)
    running.says("Finishing")
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.code == 130
    assert "Cancelling: running episodes are discarded and cleaned up." in ended.err
    assert not holders(grid)
    assert not list((workshop.folder / "tmp").iterdir())


def test_a_terminated_grid_ends_its_runs(workshop: Any) -> None:
    config = workshop.config(agent={"type": "lucky", "wait_for": str(workshop.folder / "never")})
    running = workshop.start(config, "--seeds", "1")
    grid = running.wait_for(workshop.grid)
    running.wait_for(lambda: holders(grid))
    running.wait_for(lambda: list((workshop.folder / "tmp").iterdir()))
    running.process.terminate()
    assert running.ended().code == 143
    assert not holders(grid)


def test_memory_of_the_check_is_released(workshop: Any) -> None:
    gate = workshop.folder / "gate"
    config = workshop.config(agent={"type": "lucky", "wait_for": str(gate)})
    running = workshop.start(config, "--seeds", "1", "--jobs", "3", "-n", "1")
    grid = running.wait_for(workshop.grid)
    (pid,) = running.wait_for(lambda: holders(grid))
    words = Path(f"/proc/{running.process.pid}/cmdline").read_text().split("\0")
    assert words[3:-1] == ["ale", "ablate", "--resume", str(grid), "--jobs", "3", "-n", "1"]
    assert "-n\x001" in Path(f"/proc/{pid}/cmdline").read_text()
    gate.touch()
    assert running.ended().code == 0


def test_a_grid_is_run_by_one_process_at_a_time(workshop: Any) -> None:
    config = workshop.config(agent={"type": "lucky", "wait_for": str(workshop.folder / "never")})
    running = workshop.start(config, "--seeds", "1")
    grid = running.wait_for(workshop.grid)
    running.wait_for(lambda: holders(grid))
    second = workshop.ablate("--resume", grid)
    assert second.code == 1
    assert "is in use by process" in second.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a CONFIG or --resume DIR"),
        (["study.yaml", "--resume", "x"], "give either a CONFIG or --resume DIR"),
        (["--resume", "x", "--seeds", "5"], "--resume uses the grid's saved config"),
        (["--resume", "x"], "no such directory"),
        (["study.yaml", "--vary", "a"], "expected KEY=VALUE,VALUE,..., found 'a'"),
    ],
)
def test_contradictory_arguments_are_refused(
    workshop: Any, arguments: Sequence[str], message: str
) -> None:
    workshop.config()
    ended = workshop.ablate(*arguments)
    assert ended.code == 2
    assert message in ended.err


WARNS = """
import logging

from ale.plugin import Component, hookimpl


class Observer:
    @hookimpl
    def ale_run_started(self, event): ...


def build(options, context):
    logging.getLogger("own").warning("this is slow")
    return Observer()


@hookimpl
def ale_observers():
    return [Component("warns", None, build, summary="Warns.")]
"""


def test_a_warning_of_several_cells_is_shown_once(workshop: Any) -> None:
    (workshop.folder / "own.py").write_text(WARNS)
    config = workshop.config(plugins=["own.py"], observers=[{"type": "warns"}])
    ended = workshop.ablate(config, "--vary", "run.rollouts=1,2,3", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.err.count("this is slow") == 1


def test_changed_versions_are_reported(workshop: Any) -> None:
    (workshop.folder / "own.py").write_text(WARNS)
    ended = workshop.ablate(workshop.config(plugins=["own.py"]), "--seeds", "1")
    # The plugin is no installed package, so the process that runs the grid does not miss it.
    assert "versions changed" not in ended.err
    file = workshop.folder / ended.grid / "grid.json"
    plain = json.loads(file.read_text())
    plain["versions"]["ablate-parts"] = "0.9"
    file.write_text(json.dumps(plain))
    again = workshop.ablate("--resume", ended.grid)
    assert again.code == 0
    assert "versions changed since the grid was created: ablate-parts" in again.err


def test_an_archived_run_is_not_run_again_and_of_two_runs_none_is_counted(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(), "--seeds", "2", "--jobs", "2")
    grid = workshop.folder / ended.grid
    first, second = directories(grid)
    archive = first.with_name(f"{first.name}.tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(first, first.name)
    shutil.rmtree(first)
    again = workshop.ablate("--resume", grid)
    assert again.code == 1
    said = f"unclear, left out: as written, seed 0: its run is archived: ale runs restore {archive}"
    assert said in again.out
    assert directories(grid) == [second]
    with tarfile.open(archive) as tar:
        tar.extractall(first.parent, filter="data")
    shutil.copytree(first, first.with_name(f"{first.name}-b"))
    again = workshop.ablate("--resume", grid)
    assert again.code == 1
    said = f"holds 2 runs, of which one can count: {first.name}, {first.name}-b"
    assert said in again.out
    assert [row["state"] for row in runs(grid).values()] == ["unclear", "completed"]
    shutil.rmtree(first.with_name(f"{first.name}-b"))
    assert workshop.ablate("--resume", grid).code == 0


def test_a_damaged_run_is_reported_and_left_out(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(), "--seeds", "3", "--jobs", "3")
    grid = workshop.folder / ended.grid
    first, second, _ = directories(grid)
    (first / "episodes.jsonl").write_text("{}\n")
    (second / "manifest.json").write_text("{")
    again = workshop.ablate("--resume", grid)
    assert again.code == 1
    assert "damaged, left out: as written, seed 0: " in again.out
    assert "episodes.jsonl:1" in again.out
    assert "failed: as written, seed 1 (status 2)" in again.out
    assert [row["state"] for row in runs(grid).values()] == ["damaged", "damaged", "completed"]
