"""The samples: real bugs, which their reference solutions mend."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from ale.testing.fakes import FolderSandbox
from ale.types import Score, Task
from ale_tasks_swe.samples import BUGS, write_samples

from .conftest import set_up

Grade = Callable[..., Awaitable[Score]]


# Of all of them the end-to-end tests show the same.
FEW = ("slugs", "table")


@pytest.mark.parametrize(
    "name",
    [pytest.param(bug.name, marks=[] if bug.name in FEW else [pytest.mark.long]) for bug in BUGS],
)
async def test_each_sample_is_resolved_by_its_solution_and_not_before(
    tasks: Mapping[str, Task], grade: Grade, sandbox: FolderSandbox, name: str
) -> None:
    task = tasks[name]
    options = task.criteria[0].options
    await set_up(task, sandbox)
    before = await grade(task)
    assert before.value == 0.0
    wanted, kept = len(options["fail_to_pass"]), len(options["pass_to_pass"])
    assert f"FAIL_TO_PASS: 0 of {wanted} passed; failed: " in before.detail
    assert f"PASS_TO_PASS: {kept} of {kept} passed; passed: " in before.detail
    assert "missing" not in before.detail
    for command in task.solution or ():
        assert (await sandbox.exec(command)).exit_code == 0
    after = await grade(task)
    assert after.passed, after.detail


def lines_of(folder: Path) -> list[str]:
    return (folder / "tasks.jsonl").read_text().splitlines()


def test_the_same_seed_gives_the_same_commits(samples: Path, tmp_path: Path) -> None:
    write_samples(tmp_path / "again")
    write_samples(tmp_path / "other", seed=1)
    same, again, other = (
        [json.loads(line)["base_commit"] for line in lines_of(folder)]
        for folder in (samples, tmp_path / "again", tmp_path / "other")
    )
    assert same == again
    assert not set(same) & set(other)


def test_the_samples_can_be_written_by_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ale_tasks_swe.samples", str(tmp_path / "mine"), "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tasks: {type: swe, path: ")
    assert len(list((tmp_path / "mine" / "repositories").glob("*.git"))) == 6
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is there already: name a new folder" in again.stderr
