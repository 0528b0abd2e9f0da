"""`ale regrade` in real sandboxes: newer tests and other criteria over kept states."""

import json
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ale_sandboxing.container_testing.images import DEBIAN

from . import harbor_tasks
from .harbor_tasks import skip_without

TASK: dict[str, Any] = {
    "id": "write",
    "goal": "Write a number to one.txt.",
    "solution": ["echo 1 > one.txt"],
    "success_criteria": [{"type": "command_exit_code", "command": "grep -qx 2 one.txt"}],
}


def config(workshop: Any, kind: str, **run: Any) -> dict[str, Any]:
    """A run of the reference solutions."""
    sandbox = {"type": kind}
    if kind in ("docker", "podman"):
        sandbox["image"] = DEBIAN
    else:
        workshop.space.mkdir(exist_ok=True)
        sandbox["root"] = str(workshop.space)
    return {
        "tasks": {"type": "tbp", "path": "tasks"},
        "sandbox": sandbox,
        "agent": {"type": "oracle"},
        "run": {"directory": "runs", **run},
    }


def tasks(workshop: Any, expected: int) -> None:
    """Two tasks; the solution of the first is right where 1 is expected."""
    command = f"grep -qx {expected} one.txt"
    criteria = [{"type": "command_exit_code", "command": command}]
    workshop.write("tasks/one.yaml", {**TASK, "success_criteria": criteria})
    passing = [{"type": "command_exit_code", "command": "test -s one.txt"}]
    workshop.write("tasks/two.yaml", {**TASK, "id": "any", "success_criteria": passing})


def the_run(workshop: Any) -> Path:
    (manifest,) = workshop.folder.glob("runs/*/manifest.json")
    return Path(manifest.parent)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run but for what is graded again."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {str(f): f.read_bytes() for f in files if "regraded" not in f.parts}


@pytest.mark.parametrize("kind", ["local", "bubblewrap", "docker"])
def test_a_corrected_test_is_tried_on_the_kept_states(workshop: Any, kind: str) -> None:
    """Only the failed state is kept, and outlives a prune; what passed can't be graded again."""
    if kind != "local":
        skip_without(kind)
    tasks(workshop, expected=2)
    workshop.write("c.yaml", config(workshop, kind, keep="failed"))
    assert workshop.ale("run", "c.yaml").code == 0
    run = the_run(workshop)
    before = contents(run)
    tasks(workshop, expected=1)
    assert workshop.ale("sandbox", "prune", "--type", kind).code == 0
    done = workshop.ale("regrade", str(run), "--reload")
    assert done.code == 3, done.text
    assert "graded again  1 of 2 episodes, 1 in kept states" in done.out
    assert "old success   0 of 1\nnew success   1 of 1\nchanged       1\n" in done.out
    assert "write-0  0 -> 1" in done.out
    assert "its state was not kept (run.keep)" in done.out
    assert contents(run) == before
    (records,) = run.glob("regraded/*/episodes.jsonl")
    first = [json.loads(line) for line in records.read_text().splitlines()]
    assert sorted(each["new"] for each in first if each["new"] is not None) == [1.0]


def test_a_kept_state_goes_with_the_run(workshop: Any) -> None:
    tasks(workshop, expected=2)
    workshop.write("c.yaml", config(workshop, "local", keep="all"))
    assert workshop.ale("run", "c.yaml").code == 0
    run = the_run(workshop)
    assert len([*(run / "kept").iterdir()]) == 2
    assert workshop.left_behind() != []
    listed = workshop.ale("sandbox", "list", "--type", "local").out
    assert listed.count(f", kept by {run}") == 2, listed
    assert workshop.ale("runs", "delete", str(run), "--yes").code == 0
    pruned = workshop.ale("sandbox", "prune", "--type", "local")
    assert pruned.code == 0
    assert pruned.out.count(f", kept by a run that is gone: {run}") == 2, pruned.out
    assert workshop.left_behind() == []


def test_other_criteria_that_need_no_machine_need_no_state(workshop: Any) -> None:
    tasks(workshop, expected=2)
    workshop.write("c.yaml", config(workshop, "local"))
    assert workshop.ale("run", "c.yaml").code == 0
    run = str(the_run(workshop))
    flags = ("--criterion", "exact_match:expected=none", "--json")
    done = workshop.ale("regrade", run, *flags)
    assert done.code == 0, done.text
    found = json.loads(done.out)
    assert {each["state"] for each in found} == {"answer"}
    assert [each["new"] for each in found] == [0.0, 0.0]


def test_a_sandbox_without_snapshots_can_keep_nothing(workshop: Any) -> None:
    skip_without("docker")
    tasks(workshop, expected=2)
    made = config(workshop, "docker", keep="all")
    workshop.write("c.yaml", {**made, "executor": {"type": "nats"}})
    done = workshop.ale("check", "c.yaml")
    assert done.code == 2
    assert "run.keep: states are kept only of episodes that this process runs" in done.text


def test_newer_tests_of_a_task_folder_run_in_the_kept_container(workshop: Any) -> None:
    """The container's whole file system is kept; without layers there is no judge, and it says."""
    skip_without("docker")
    harbor_tasks.add(
        workshop,
        "system",
        solve="echo 5 > /etc/answer; echo 1 > done",
        test=harbor_tasks.JUDGE.format(check="grep -qx 4 /etc/answer"),
    )
    harbor_tasks.config(workshop, "docker", run={"retries": 0, "keep": "all"})
    done = workshop.ale("run", "run.yaml")
    assert done.code == 0, done.text
    newer = harbor_tasks.JUDGE.format(check="grep -qx 5 /etc/answer")
    workshop.write("tasks/system/tests/test.sh", f"#!/bin/bash\n{newer}\n")
    (run,) = workshop.runs
    done = workshop.ale("regrade", str(run), "--json")
    assert done.code == 0, done.text
    (found,) = json.loads(done.out)
    assert (found["old"], found["new"], found["state"]) == (0.0, 1.0, "kept")
    assert "agent's own sandbox" in found["scores"][0]["detail"]
    assert "a snapshot does not tell the agent's changes" in found["scores"][0]["detail"]
    shutil.move(workshop.folder / "tasks", workshop.folder / "moved")
    done = workshop.ale("regrade", str(run))
    assert f"No such file or directory: '{workshop.folder / 'tasks'}'" in done.out, done.text


@pytest.mark.parametrize("kind", ["bubblewrap", "docker"])
def test_a_pass_by_a_replaced_tool_stays_contested(workshop: Any, kind: str) -> None:
    """Where the state is kept as where not, and where it is graded again without a judge."""
    skip_without(kind)
    command = "printf '2\\n' | cmp - one.txt"
    criteria = [{"type": "command_exit_code", "command": command}]
    workshop.write("tasks/one.yaml", {**TASK, "success_criteria": criteria})
    made = config(workshop, kind, keep="all", contested="failed")
    if kind == "bubblewrap":  # else an agent can't replace a tool of /usr
        made["sandbox"]["writable_system"] = True
    workshop.write("c.yaml", {**made, "agent": {"type": "attack", "attack": "tools"}})
    assert workshop.ale("run", "c.yaml").code == 0
    (score,) = workshop.episodes()["0-write-0"]["scores"]
    assert (score["value"], score["contested"]) == (0.0, 0.0), score
    assert "contested: 1 with, 0 without the agent's changes" in score["detail"]
    done = workshop.ale("regrade", str(workshop.run))
    assert done.code == 0, done.text
    assert "new success   0 of 1\nchanged       0\n" in done.out
    assert "no judge      1  (graded in the agent's own sandbox, which has no judge)" in done.out
    assert "contested     1  " in done.out
    shown = ("regrade", str(workshop.run), "--set", "run.contested=reward", "--json")
    (found,) = json.loads(workshop.ale(*shown).out)
    assert (found["new"], found["scores"][0]["contested"]) == (1.0, 0.0)


def test_without_kept_states_nothing_is_stored(workshop: Any) -> None:
    tasks(workshop, expected=2)
    workshop.write("c.yaml", config(workshop, "local"))
    assert workshop.ale("run", "c.yaml").code == 0
    done = workshop.ale("regrade", str(workshop.run))
    assert done.code == 3, done.text
    assert "graded again  0 of 2 episodes" in done.out
    assert done.err.count("not graded 0-") == 2, done.err
    assert "nothing was graded, so nothing is stored" in done.out
    assert "success" not in done.out
    assert not (workshop.run / "regraded").exists()


@pytest.mark.parametrize("presses", [1, 2])
def test_after_ctrl_c_what_is_graded_is_stored(workshop: Any, presses: int) -> None:
    criteria = [{"type": "command_exit_code", "command": "sleep ${SLOW:-0}; test -s one.txt"}]
    for name in "abc":
        task = {**TASK, "id": name, "success_criteria": criteria}
        workshop.write(f"tasks/{name}.yaml", task)
    workshop.write("c.yaml", config(workshop, "local", keep="all"))
    assert workshop.ale("run", "c.yaml").code == 0
    first = workshop.lines()[0]["task_id"]
    for file in (workshop.folder / "tasks").iterdir():
        slow = "0" if file.stem == first else "4" if presses == 1 else "1000"
        file.write_text(file.read_text().replace("${SLOW:-0}", slow))
    going = workshop.start("regrade", str(workshop.run), "--reload")
    workshop.wait_for(lambda: going.has_printed(f"graded 0-{first}-0  1 -> 1"), 60)
    for said in ("Finishing", "Cancelling")[:presses]:
        going.signal(signal.SIGINT)
        workshop.wait_for(partial(going.has_printed, said), 30)
    done = going.ended(60)
    assert done.code == 130, done.text
    n = 2 if presses == 1 else 1
    assert f"graded again  {n} of 3 episodes" in done.out
    assert f"{3 - n} not looked at" in done.err
    (records,) = workshop.run.glob("regraded/*/episodes.jsonl")
    assert len(records.read_text().splitlines()) == n
    assert workshop.orphans() == []
