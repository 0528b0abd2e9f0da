"""`ale run --deterministic`: the same config gives the same bytes, in whatever folder."""

from pathlib import Path
from typing import Any

import pytest

FILES = ("episodes.jsonl", "credits/00000.jsonl", "events.jsonl", "tasks.jsonl")


def run_in(workshop: Any, runs: Path, *arguments: str) -> dict[str, bytes]:
    """The files of one deterministic run, by name."""
    directory = f"run.directory={runs}"
    workshop.succeeds("run", "run.yaml", "--deterministic", "--set", directory, *arguments)
    (run,) = runs.iterdir()
    return {name: (run / name).read_bytes() for name in FILES}


def configure(workshop: Any, *lines: Any) -> None:
    for number in range(3):
        workshop.task(f"t{number}")
    workshop.scripted({"default": [*lines], "tokens": True}, run={"rollouts": 2})


@pytest.mark.parametrize("sandbox", ["local", "bubblewrap"])
def test_two_runs_are_the_same_to_the_byte(workshop: Any, shell: Any, sandbox: str) -> None:
    configure(workshop, *shell("ls", "echo $RANDOM > /dev/null; touch done", "sleep 100 &"))
    (workshop.space / "elsewhere").mkdir(parents=True)
    chosen = ["--set", f"sandbox={{type: {sandbox}, root: {workshop.space}}}"]
    elsewhere = ["--set", f"sandbox={{type: {sandbox}, root: {workshop.space}/elsewhere}}"]
    first = run_in(workshop, workshop.folder / "one", *chosen)
    second = run_in(workshop, workshop.folder / "another/folder", *elsewhere)
    assert first == second
    assert first["episodes.jsonl"].count(b"\n") == 6


def test_workspace_paths_are_the_same_under_one_root(workshop: Any, shell: Any) -> None:
    configure(workshop, *shell("pwd", "touch done"))
    first = run_in(workshop, workshop.folder / "one")
    second = run_in(workshop, workshop.folder / "two")
    assert first == second
    other = run_in(workshop, workshop.folder / "three", "--set", "run.seed=1")
    assert other["episodes.jsonl"] != first["episodes.jsonl"]


def test_a_deterministic_run_takes_no_concurrency(workshop: Any) -> None:
    ended = workshop.ale("run", "run.yaml", "--deterministic", "-n", "2")
    assert ended.code == 2
    assert "--deterministic runs one episode at a time" in ended.err
