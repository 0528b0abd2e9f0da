"""`ale status`: what runs, how it is, and what has run."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ale.processes import FOLDER_VARIABLE, announced
from ale.recording import Recording
from ale.runs import Registry
from ale.testing.builders import episode, task
from ale_workbench.machine.commands import status

KILLED = """
import os, signal, sys
from pathlib import Path
from ale.recording import Recording
from ale.runs import Registry
recording = Recording(Path(sys.argv[1]), {"chunker": {"type": "interaction"}}, Registry())
os.kill(os.getpid(), signal.SIGKILL)
"""
CONFIG = {"chunker": {"type": "interaction"}, "llm": {"type": "ale-proxy/bridge"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "processes"))
    monkeypatch.chdir(tmp_path)


def recorded(path: str, rewards: list[float | None]) -> Recording:
    made = Recording(Path(path), CONFIG, Registry())
    for rollout, reward in enumerate(rewards):
        made.add(task(), episode(reward, rollout=rollout))
    return made


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(status, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def as_json(*arguments: str) -> Any:
    return json.loads(printed(*arguments, "--json"))


def test_a_machine_without_anything() -> None:
    assert printed() == "No runs.\n\nNo worker, server, proxy or loop is running.\n"
    assert as_json() == {"runs": [], "hidden_runs": 0, "processes": []}


def test_runs_that_run_that_ended_and_that_were_interrupted() -> None:
    recorded("runs/ended", [1.0, 0.0, None]).close()
    running = recorded("runs/running", [0.5])
    # Killed: the lock is gone, and nobody has said how it ended.
    lost = [sys.executable, "-c", KILLED, "runs/lost"]
    assert subprocess.run(lost, timeout=120).returncode == -signal.SIGKILL
    found = {run["name"]: run for run in as_json()["runs"]}
    ended = found["ended"]
    assert (ended["state"], ended["kind"], ended["pid"]) == ("completed", "bridge", None)
    assert (ended["graded"], ended["broken"], ended["mean_reward"]) == (2, 1, 0.5)
    assert (found["running"]["state"], found["running"]["graded"]) == ("running", 1)
    assert found["lost"]["state"] == "interrupted"
    assert "running (" in printed()
    running.close()


def test_runs_are_found_where_ale_eval_puts_them() -> None:
    recorded("runs/humaneval-small-1a2b3c4d/deep", [1.0]).close()
    recorded("runs/flat", []).close()
    recorded("runs/flat/copy/of", []).close()  # a run's own folders are not looked into
    assert {run["name"] for run in as_json()["runs"]} == {"humaneval-small-1a2b3c4d/deep", "flat"}


def test_runs_that_have_the_same_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    for folder in ("validate-a", "validate-b"):
        recorded(f"runs/{folder}/tools", []).close()
    text = printed()
    assert "validate-a/tools " in text
    assert "validate-b/tools " in text
    (alone,) = as_json("--runs", "runs/validate-a/tools")["runs"]
    assert alone["name"] == str(tmp_path / "runs/validate-a/tools")


def test_what_is_announced_is_listed_with_its_run_wherever_that_is(tmp_path: Path) -> None:
    elsewhere = recorded(str(tmp_path / "elsewhere" / "mine"), [])
    with (
        announced("loop", directory=elsewhere.path, url="http://h:1"),
        announced("worker", labels=["docker", "gpu"], slots=2),
    ):
        found = as_json()
        name = str(tmp_path / "elsewhere" / "mine")
        assert [(run["name"], run["kind"]) for run in found["runs"]] == [(name, "loop")]
        loop, worker = found["processes"]
        assert (loop["kind"], loop["url"]) == ("loop", "http://h:1")
        assert (worker["labels"], worker["slots"]) == (["docker", "gpu"], 2)
        text = printed()
        assert "http://h:1" in text
        assert "labels docker,gpu  slots 2" in text
    elsewhere.close()
    assert as_json()["processes"] == []


def test_the_newest_runs_are_shown_and_the_number_of_the_others() -> None:
    for name in ("a", "b", "c"):
        recorded(f"runs/{name}", []).close()
    running = recorded("runs/d", [])
    found = as_json("--limit", "1")
    assert "d" in [run["name"] for run in found["runs"]]
    assert (len(found["runs"]), found["hidden_runs"]) == (2, 2)
    assert "and 2 older runs" in printed("--limit", "1")
    running.close()


def test_a_run_that_can_not_be_read_is_shown_as_such() -> None:
    Path("runs/odd").mkdir(parents=True)
    Path("runs/odd/manifest.json").write_text("{")
    (run,) = as_json()["runs"]
    assert run["state"] == "unreadable"
    assert run["problem"]
    assert "unreadable" in printed()
