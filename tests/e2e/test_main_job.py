"""The main job: from tasks to graded, chunked and credited episodes on disk."""

import json
import re
from typing import Any

import pytest


def turns(episode: dict[str, Any]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = episode["trajectory"]["turns"]
    return made


@pytest.fixture
def config(workshop: Any, shell: Any) -> str:
    """Two tasks, two rollouts each: one task is done in the second rollout only, one never."""
    workshop.task("write-done")
    workshop.task("forget-it")
    script = {
        "write-done": [shell("ls", "echo wrong"), shell("ls", "touch done")],
        "forget-it": [shell("ls")],
    }
    workshop.scripted({"tasks": script}, run={"rollouts": 2, "concurrency": 3})
    return "run.yaml"


def test_a_run_leaves_graded_chunked_and_credited_episodes(workshop: Any, config: str) -> None:
    workshop.succeeds("run", config)
    episodes = workshop.episodes()
    assert {name: episode["reward"] for name, episode in episodes.items()} == {
        "0-write-done-0": 0.0,
        "0-write-done-1": 1.0,
        "0-forget-it-0": 0.0,
        "0-forget-it-1": 0.0,
    }
    completions = [turn["completion"] for turn in turns(episodes["0-write-done-1"])]
    called = [completion["message"]["tool_calls"][0]["name"] for completion in completions]
    assert called == ["shell", "shell", "finish"]
    assert episodes["0-write-done-1"]["trajectory"]["stop"]["reason"] == "finished"
    rows = {row["episode_id"]: row for row in workshop.lines("credits/00000.jsonl")}
    assert rows.keys() == episodes.keys()
    good = rows["0-write-done-1"]
    assert len(good["chunks"]) == len(good["credit"]["weights"]) == 3
    assert good["credit"]["weights"] == sorted(good["credit"]["weights"])
    assert good["credit"]["returns"][-1] == 1.0
    manifest = json.loads((workshop.run / "manifest.json").read_text())
    assert manifest["outcome"]["n_succeeded"] == 1
    assert manifest["versions"]["ale-sandbox-local"] == "0.1.0"
    assert workshop.left_behind() == []


def test_the_summary_says_what_happened_where_it_is_and_what_to_try_next(
    workshop: Any, config: str
) -> None:
    done = workshop.ale("run", config)
    run = f"runs/{workshop.run.name}"
    assert "completed: 4 episodes on disk after" in done.out
    assert "1 of 4  25.0%  (95% interval 2.7 to 80.2)" in done.out
    assert f"stored in\n  {run}\n" in done.out
    following = [line.strip() for line in done.out.partition("next\n")[2].splitlines()]
    assert following == [
        f"ale show {run}",
        f"ale report {run}",
        f"ale show credit {run}",
    ]
    for line in following:
        workshop.succeeds(*line.split()[1:])


def test_a_stored_run_is_shown_and_credited_again(workshop: Any, config: str) -> None:
    ran = workshop.ale("run", config)
    run = str(workshop.run)
    overview = workshop.ale("show", run).out
    printed = re.search(r"completed: 4 episodes on disk after (.+)\n", ran.out)
    assert printed, ran.out
    assert overview.splitlines()[0] == f"{workshop.run.name}: completed after {printed[1]}"
    assert overview.splitlines()[-1].split() == ["write-done", "2", "1", "0.50", "3.0", "0"]
    episode = workshop.ale("show", run, "0-write-done-1").out
    assert "0-write-done-1: reward 1.000; agent ended: finished" in episode
    assert '> shell {"command": "touch done"}' in episode
    assert "weight +" in episode
    before = (workshop.run / "credits" / "00000.jsonl").read_bytes()
    compared = workshop.succeeds(
        "show", "credit", run, "--scheme", "ipa", "--scheme", "grpo", "--limit", "9"
    )
    ipa, grpo = compared.out.splitlines()[-2:]
    assert ipa.split()[:3] == ["ipa", "4", "10"]
    assert grpo.split()[:3] == ["grpo", "4", "10"]
    assert (workshop.run / "credits" / "00000.jsonl").read_bytes() == before


def test_a_dry_run_and_a_check_say_the_plan_and_write_nothing(workshop: Any, config: str) -> None:
    before = sorted(workshop.folder.rglob("*"))
    for arguments in (("run", config, "--dry-run"), ("check", config)):
        result = workshop.succeeds(*arguments)
        assert (
            "2 tasks; 1 step of 2 tasks x 2 rollouts: 4 episodes, at most 3 at the same time"
            in result.out
        )
        assert "sandbox   local" in result.out
    assert sorted(workshop.folder.rglob("*")) == before


def test_a_replay_gives_the_same_rewards_without_the_script(workshop: Any, config: str) -> None:
    workshop.ale("run", config)
    first = workshop.run
    (workshop.folder / "script.yaml").unlink()
    workshop.succeeds("run", config, "--replay", str(first), "--set", "llm.at_end=error")
    old, new = workshop.runs
    assert old == first

    def facts(run: Any) -> dict[str, Any]:
        return {
            name: (episode["reward"], [turn["completion"] for turn in turns(episode)])
            for name, episode in workshop.episodes(run).items()
        }

    assert facts(new) == facts(old)
