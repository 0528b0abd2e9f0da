"""The data side as commands: a run, its episodes as rows, their credit, pairs, and training."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
"""These tests start `ale` several times; how long that takes says nothing."""


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def ale(workshop: Any) -> Any:
    """Run a command that has to succeed; what it prints."""

    def run(*arguments: str) -> str:
        done = workshop.ale(*arguments, timeout_s=PATIENCE_S)
        assert done.code == 0, done.text
        return str(done.out)

    return run


@pytest.fixture
def scored(workshop: Any, ale: Any, shell: Any) -> Path:
    """Two rollouts of a task, one of which does it; collected and scored as ALE-lite does."""
    workshop.task("make")
    good, bad = shell("pwd", "touch done"), shell("pwd", "touch $PWD/other")
    workshop.scripted({"tasks": {"make": [good, bad]}}, run={"rollouts": 2}, observers=[])
    ale("run", "run.yaml")
    assert ale("collect", "runs", "--out", "raw.jsonl").startswith("raw.jsonl: 2 rows from 2")
    ale("score", "--in", "raw.jsonl", "--out", "scored.jsonl")
    return Path(workshop.folder / "scored.jsonl")


def test_ale_lites_credit_is_the_default(scored: Path) -> None:
    good, bad = rows(scored)
    assert (good["chunker"], good["scheme"]) == ("ale-lite", "ipa-lite")
    assert (good["episode"]["reward"], bad["episode"]["reward"]) == (1.0, 0.0)
    assert [chunk["kind"] for chunk in good["chunks"]].count("tool-call") == 3
    n = len(good["chunks"])
    for row, reward in ((good, 1.0), (bad, 0.0)):
        assert row["batch"] == {"n_episodes": 2, "mean_reward": 0.5}
        assert row["credit"]["rewards"] == pytest.approx([reward * k / n for k in range(1, n + 1)])
        assert row["credit"]["weights"] == pytest.approx(
            [reward * k / n - 0.5 for k in range(1, n + 1)]
        )


def test_rollouts_part_at_one_prompt_though_each_had_its_own_folder(
    scored: Path, workshop: Any, ale: Any
) -> None:
    ale("dataset", "dpo", "--in", "scored.jsonl", "--out", "dpo.jsonl")
    (pair,) = rows(workshop.folder / "dpo.jsonl")
    (good, bad) = (
        json.loads(pair[side][0]["tool_calls"][0]["function"]["arguments"])["command"]
        for side in ("chosen", "rejected")
    )
    assert (good, bad) == ("touch done", "touch $PWD/other")
    assert [message["role"] for message in pair["prompt"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]


def test_a_trainer_learns_from_the_rows_and_goes_on_where_it_was(
    scored: Path, workshop: Any, ale: Any
) -> None:
    train = ("dataset", "train", "run.yaml", "--in", "scored.jsonl", "--out", "offline")
    refused = workshop.ale(*train, timeout_s=PATIENCE_S)
    assert refused.code == 2
    assert "trainer: needed to train" in refused.err
    train = (*train, "--set", "trainer.type=export")
    unscored = workshop.ale(*train, "--in", "raw.jsonl", timeout_s=PATIENCE_S)
    assert unscored.code == 2
    assert "ale score writes such rows" in unscored.err
    assert not (workshop.folder / "offline").exists()
    assert ale(*train).splitlines() == ["step 0: policy 0", "1 steps; offline/checkpoints/00000"]
    written = rows(workshop.folder / "offline" / "export" / "rows.jsonl")
    assert {(row["episode"], row["reward"]) for row in written} == {
        ("0-make-0", 1.0),
        ("0-make-1", 0.0),
    }
    assert "1 steps were done before" in ale(*train, "--epochs", "2")


def test_the_policy_learns_what_stored_episodes_show(workshop: Any, ale: Any) -> None:
    few = ("tasks.count=16", "evaluation.tasks.count=1")
    config = (str(ROOT / "configs" / "quickstart.yaml"), *(f"--set={each}" for each in few))
    short = ("run.steps=1", "run.tasks_per_step=8", "run.rollouts=1", "observers=[]")
    ale("run", *config, *(f"--set={each}" for each in short))
    ale("collect", "runs", "--out", "raw.jsonl")
    ale("score", "--in", "raw.jsonl", "--out", "scored.jsonl", "--scheme", "ipa")
    # Epochs of two steps, over the same demonstrations.
    said = ale("dataset", "train", *config, "--in", "scored.jsonl", "--out", "off", "--epochs", "3")
    losses = [
        step["metrics"]["loss_imitation"] for step in rows(workshop.folder / "off/events.jsonl")
    ]
    assert len(losses) == 6
    assert losses[4] < losses[2] < losses[0]
    assert losses[5] < losses[3] < losses[1]
    assert said.splitlines()[-1] == "6 steps; off/checkpoints/00005"
