"""Controls: which a config has, and grids with them, run for real and interrupted."""

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.runs import RunReader
from ale_ablate.controls import check_arms, controls_of

LEARNS: dict[str, Any] = {
    "tasks": {"type": "few", "number": 4},
    "llm": {"type": "pupil"},
    "agent": {"type": "asking"},
    "starts": {"type": "shown", "demonstrations": 2},
    "trainer": {"type": "teacher"},
    "evaluation": {"tasks": {"type": "few", "number": 5}, "every": 3},
    "run": {"steps": 4, "rollouts": 4, "concurrency": 4},
}


def resolved(**sections: Any) -> dict[str, Any]:
    plain = {
        "llm": {"type": "policy", "temperature": 0.8},
        "credit": {"type": "ipa"},
        "starts": {"type": "initial", "demonstrations": 30, "until": 0.1},
        "trainer": {"type": "policy", "imitation": {"when": "always"}},
        "evaluation": {"temperatures": None},
        "run": {"steps": 60},
    }
    return {**plain, **sections}


def test_a_config_with_demonstrations_has_every_control_and_a_common_start() -> None:
    found = controls_of(resolved())
    assert found.branches
    assert found.notes == ()
    assert found.cells == {
        "reward-blind": ("credit.type=weight-one",),
        "imitation": ("starts.after=same-demonstrations",),
        "frozen": ("evaluation.temperatures=[0, 0.3, 0.6, 0.8]", "run.steps=30"),
    }


def test_without_demonstrations_imitation_is_left_out_and_that_is_said() -> None:
    found = controls_of(resolved(starts={"type": "initial", "demonstrations": 0}))
    assert not found.branches
    assert {*found.cells} == {"reward-blind", "frozen"}
    assert "trainer=null" in found.cells["frozen"]
    assert found.notes == ("no control by imitation: the config has no demonstrations",)
    off = controls_of(resolved(trainer={"type": "policy", "imitation": {"when": "off"}}))
    assert off.notes == ("no control by imitation: the trainer imitates nothing",)


def test_where_an_expert_guides_rollouts_its_solutions_are_imitated_instead() -> None:
    starts = {"type": "rollback", "expert": "solution", "demonstrations": 0}
    found = controls_of(resolved(starts=starts))
    assert found.cells["imitation"] == ("starts.demonstrations=60", "starts.until=null")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"trainer": None}, "trainer: nothing is trained"),
        ({"evaluation": None}, "evaluation: controls are compared by success on held-out tasks"),
        ({"evaluation": {"temperatures": [1]}}, "0 and the temperature of training are compared"),
        ({"llm": {"type": "openai"}}, "the temperature of training is unknown"),
    ],
)
def test_what_controls_need_is_said(sections: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        controls_of(resolved(**sections))


def test_arms_with_a_common_start_have_one_model_and_the_same_tasks() -> None:
    controls = controls_of(resolved())
    check_arms([["credit.type=ipa"], ["credit.type=grpo"]], controls)
    with pytest.raises(InputError, match=r"llm\.model"):
        check_arms([["llm.model=a"], ["llm.model=b"]], controls)


def evaluations(grid: Path) -> list[dict[str, str]]:
    with (grid / "evaluations.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_arm_begins_where_the_demonstrations_of_the_first_ended(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(**LEARNS), "--controls", "--seeds", "2", "--jobs", "2")
    assert ended.code == 0, ended.err + ended.out
    grid = workshop.folder / ended.grid
    first, *others = sorted(path.parent for path in grid.glob("cells/*/seed-1/*/manifest.json"))
    shown = [e for e in RunReader(first).episodes if e.step < 2 or e.split == "evaluation"]
    before = [e.id for e in shown if e.step <= 2]
    for path in others:
        run = RunReader(path)
        assert run.manifest["branched_from"] == {"run": str(first), "steps": 2}
        ids = [episode.id for episode in run.episodes]
        assert len(ids) == len({*ids})
        kept = before if "frozen" not in path.parts[-3] else [e.id for e in shown if e.step < 2]
        assert ids[: len(kept)] == kept
    found = {
        (row["control"], row["temperature"]): int(row["succeeded"])
        for row in evaluations(grid)
        if row["seed"] == "1" and row["step"] == ("2" if row["control"] == "frozen" else "4")
    }
    # Only rewards teach it the answer at temperature 0.
    assert (found["", "0.0"], found["", ""]) == (5, 5)
    assert found["reward-blind", "0.0"] == found["imitation", "0.0"] == 0
    assert found["frozen", "0.0"] == 0
    assert found["frozen", "0.3"] == found["frozen", "1.0"] == found["reward-blind", ""]
    sentence = "as written, greedy: 100.0%"
    assert sentence in ended.out
    assert "Not shown: 2 seeds are too few for 12 comparisons, which need 9." in " ".join(
        ended.out.split()
    )
    assert "With controls" in (grid / "report.html").read_text()
    assert "## With controls" in (grid / "table.md").read_text()


def test_a_dry_run_shows_the_controls_as_overrides(workshop: Any) -> None:
    ended = workshop.ablate(workshop.config(**LEARNS), "--controls", "--dry-run")
    assert ended.code == 0, ended.err
    assert "4 cells x 5 seeds: 20 runs, whose episodes are counted as they run\n" in ended.out
    assert "0 episodes" not in ended.out
    assert "reward-blind: credit.type=weight-one" in ended.out
    assert "frozen: evaluation.temperatures=[0, 0.3, 0.6, 1], run.steps=2" in ended.out
    assert "every other cell begins where the demonstrations of the first one end" in ended.out


def test_a_grid_with_controls_that_was_killed_resumes_exactly(workshop: Any) -> None:
    running = workshop.start(workshop.config(**LEARNS), "--controls", "--seeds", "1")
    running.says("reward-blind, seed 0 (from step 2 of as written)")
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    grid = workshop.grid()
    running.wait_for(lambda: not _holders(grid))
    again = workshop.ablate("--resume", grid)
    assert again.code == 0, again.err + again.out
    runs = sorted(path.parent for path in grid.glob("cells/*/seed-0/*/manifest.json"))
    assert len(runs) == 4
    for path in runs:
        ids = [episode.id for episode in RunReader(path).episodes]
        assert len(ids) == len({*ids})


def _holders(grid: Path) -> list[int]:
    found = [int(path.read_text() or 0) for path in grid.glob("cells/*/seed-*/*/.lock")]
    return [pid for pid in found if pid and Path(f"/proc/{pid}").exists()]


def test_without_demonstrations_every_arm_begins_by_itself(workshop: Any) -> None:
    config = {**LEARNS, "starts": {"type": "shown", "demonstrations": 0}}
    ended = workshop.ablate(workshop.config(**config), "--controls", "--seeds", "1")
    assert ended.code == 0, ended.err + ended.out
    grid = workshop.folder / ended.grid
    assert json.loads((grid / "grid.json").read_text())["branches"] is False
    assert {row["control"] for row in evaluations(grid)} == {"", "reward-blind", "frozen"}
    assert "no control by imitation: the config has no demonstrations" in ended.err


def test_nothing_begins_where_the_first_arm_failed(workshop: Any) -> None:
    config = {**LEARNS, "credit": {"type": "failing"}}
    ended = workshop.ablate(workshop.config(**config), "--controls", "--seeds", "1")
    assert ended.code == 1
    assert "failed: as written, seed 0 (status 1)" in ended.out
    assert "not started: it begins where as written, seed 0 learned" in ended.out
    assert "incomplete: 0 of 4 runs completed" in ended.out


def test_nothing_follows_demonstrations_that_last_to_the_end(workshop: Any) -> None:
    config = {**LEARNS, "starts": {"type": "shown", "demonstrations": 9}}
    ended = workshop.ablate(workshop.config(**config), "--controls", "--seeds", "1")
    assert ended.code == 1
    assert "no step follows the demonstrations, so there is nothing to compare" in ended.out
