"""The data side as commands: a run, its episodes as rows, their credit, pairs, and training."""

import json
import signal
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
        return str(workshop.succeeds(*arguments, timeout_s=PATIENCE_S).out)

    return run


@pytest.fixture
def scored(workshop: Any, ale: Any, shell: Any) -> Path:
    """Two rollouts of a task, one of which does it; collected and scored as ALE-lite does."""
    workshop.task("make")
    good, bad = shell("pwd", "touch done"), shell("pwd", "touch $PWD/other")
    script = {"tasks": {"make": [good, bad]}}
    workshop.scripted(script, run={"rollouts": 2}, observers=[])
    ale("run", "run.yaml")
    collected = ale("data", "collect", "runs", "--out", "raw.jsonl")
    assert collected.startswith("raw.jsonl: 2 rows from 2")
    parts = ("--chunker", "ale-lite", "--scheme", "ipa-lite")
    ale("data", "score", "--in", "raw.jsonl", "--out", "scored.jsonl", *parts)
    return Path(workshop.folder / "scored.jsonl")


def test_ale_lites_credit_is_that_of_its_chunks(scored: Path) -> None:
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
    ale("data", "dpo", "--in", "scored.jsonl", "--out", "dpo.jsonl")
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


def test_a_trainer_learns_from_the_rows_and_resumes(scored: Path, workshop: Any, ale: Any) -> None:
    train = ("train", "rows", "run.yaml", "--in", "scored.jsonl", "--out", "offline")
    refused = workshop.ale(*train, timeout_s=PATIENCE_S)
    assert refused.code == 2
    assert "trainer: needed to train" in refused.err
    train = (*train, "--set", "trainer.type=export")
    unscored = workshop.ale(*train, "--in", "raw.jsonl", timeout_s=PATIENCE_S)
    assert unscored.code == 2
    assert "ale data score writes such rows" in unscored.err
    workshop.write("empty.jsonl", "")
    empty = workshop.ale(*train, "--in", "empty.jsonl", timeout_s=PATIENCE_S)
    assert empty.code == 2
    assert "empty.jsonl: the file has no rows" in empty.err.replace(str(workshop.folder), "")
    assert not (workshop.folder / "offline").exists()
    assert ale(*train).splitlines() == ["step 0: policy 0", "1 step; offline/checkpoints/00000"]
    written = rows(workshop.folder / "offline" / "export" / "rows.jsonl")
    assert {(row["episode"], row["reward"]) for row in written} == {
        ("0-make-0", 1.0),
        ("0-make-1", 0.0),
    }
    assert "1 step done earlier" in ale(*train, "--epochs", "2")
    other = workshop.ale(*train, "--set", "run.seed=7", "--epochs", "3", timeout_s=PATIENCE_S)
    assert other.code == 2
    assert "offline: started with run.seed 0, which is 7 now" in other.err


def assert_same_weights(model: Path, checkpoint: Path) -> None:
    from safetensors.torch import load_file

    exported = load_file(model / "model.safetensors")
    trained = load_file(checkpoint / "trainer.safetensors")
    assert exported
    assert all(exported[name].equal(trained[f"weight/{name}"]) for name in exported)


@pytest.mark.needs("torch")
def test_the_policy_learns_what_stored_episodes_show(workshop: Any, ale: Any) -> None:
    few = ("tasks.count=16", "evaluation.tasks.count=1")
    config = (str(ROOT / "configs" / "quickstart.yaml"), *(f"--set={each}" for each in few))
    short = ("run.steps=2", "run.tasks_per_step=8", "run.rollouts=1", "observers=[]")
    ale("run", *config, *(f"--set={each}" for each in short))
    ale("data", "collect", "runs", "--out", "raw.jsonl")
    ale("data", "score", "--in", "raw.jsonl", "--out", "scored.jsonl", "--scheme", "ipa")
    # Epochs of two steps, over the same demonstrations.
    printed = ale("train", "rows", *config, "--in", "scored.jsonl", "--out", "off", "--epochs", "3")
    losses = [
        step["metrics"]["loss_imitation"] for step in rows(workshop.folder / "off/events.jsonl")
    ]
    assert len(losses) == 6
    assert losses[4] < losses[2] < losses[0]
    assert losses[5] < losses[3] < losses[1]
    assert printed.splitlines()[-1] == "6 steps; off/checkpoints/00005"
    kept = sorted(path.name for path in (workshop.folder / "off/checkpoints").iterdir())
    assert kept == ["00004", "00005"]
    assert "the model after 6 steps, policy version 6, of off/" in ale(
        "model", "off", "--out", "model"
    )
    assert_same_weights(workshop.folder / "model", workshop.folder / "off/checkpoints/00005")
    workshop.write("other.txt", "mv cp rm\n")
    train = ("train", "rows", *config, "--in", "scored.jsonl", "--out", "on", "--epochs", "99")
    running = workshop.start(*train)
    workshop.wait_for(lambda: "step 2: " in running.printed)
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.code == 130
    said = "\nThe same command resumes after the last step in on.\n\nInterrupted.\n"
    assert ended.err.endswith(said)
    other = ("--set", f"llm.tiny.corpus={workshop.folder / 'other.txt'}", "--out", "other")
    refused = workshop.ale("train", "rows", *config, "--in", "scored.jsonl", *other)
    assert refused.code == 2
    assert "scored.jsonl:1: episode.metadata.tokenizer: sampled with the tokenizer" in refused.err


CHUNKERS = ["ale-lite", "interaction", "message", "micro-step", "tool-call", "trajectory"]


def called_in_text(text: str, tool: str, **arguments: str) -> dict[str, str]:
    """An answer that calls a tool in a fenced block, as models without tool calls do."""
    call = json.dumps({"name": tool, "arguments": arguments})
    return {"text": f"{text}\n```tool\n{call}\n```"}


@pytest.fixture
def calling_in_text(workshop: Any, ale: Any) -> Path:
    """Two collected rollouts of an agent that parses its calls out of the model's text."""
    workshop.task("make")
    look = called_in_text("Look.", "shell", command="pwd")
    finish = called_in_text("End.", "finish", summary="Done.")
    good = [look, called_in_text("Do it.", "shell", command="touch done"), finish]
    bad = [look, called_in_text("Hm.", "shell", command="true"), finish]
    agent = {"type": "iflow", "tool_format": "text"}
    script = {"tasks": {"make": [good, bad]}}
    workshop.scripted(script, agent=agent, run={"rollouts": 2}, observers=[])
    ale("run", "run.yaml")
    ale("data", "collect", "runs", "--out", "raw.jsonl")
    collected = Path(workshop.folder / "raw.jsonl")
    turns = rows(collected)[0]["episode"]["trajectory"]["turns"]
    assert [each["role"] for turn in turns for each in turn["observations"]] == ["user"] * 3
    assert not any(turn["completion"]["message"].get("tool_calls") for turn in turns)
    return collected


def test_every_chunk_of_calls_in_text_can_be_learned_from(
    calling_in_text: Path, workshop: Any, ale: Any
) -> None:
    for chunker in CHUNKERS:
        ale("data", "score", "--in", "raw.jsonl", "--out", "scored.jsonl", "--chunker", chunker)
        ale("data", "rl", "--in", "scored.jsonl", "--out", "rl.jsonl")
        extremes = ("--out", "extremes.jsonl", "--pairing", "same-trajectory")
        ale("data", "dpo", "--in", "scored.jsonl", *extremes)
        n_chunks = sum(len(row["chunks"]) for row in rows(workshop.folder / "scored.jsonl"))
        learned = rows(workshop.folder / "rl.jsonl")
        assert len(learned) == n_chunks, chunker
        answers = [m for row in learned for m in row["completion"] if m["role"] == "assistant"]
        assert [message["content"].splitlines()[0] for message in answers] == [
            *("Look.", "Do it.", "End."),
            *("Look.", "Hm.", "End."),
        ]
        pairs = rows(workshop.folder / "extremes.jsonl")
        assert len(pairs) == (0 if chunker == "trajectory" else 1), chunker


def test_calls_in_text_make_every_form_of_data_set(
    calling_in_text: Path, workshop: Any, ale: Any
) -> None:
    for kind in ("sft", "dpo"):
        failures = ("--min-reward", "0") if kind == "sft" else ()
        ale("data", kind, "--in", "raw.jsonl", "--out", f"{kind}.jsonl", *failures)
        for form in ("openai", "sharegpt", "trl"):
            exported = (f"{form}-{kind}.jsonl", "--format", form)
            ale("data", "export", "--in", f"{kind}.jsonl", "--out", *exported)
            ale("data", "import", *exported, "--out", f"back-{form}-{kind}.jsonl")
    (pair,) = rows(workshop.folder / "dpo.jsonl")
    chosen, rejected = (pair[side][0]["content"] for side in ("chosen", "rejected"))
    assert (chosen.splitlines()[0], rejected.splitlines()[0]) == ("Do it.", "Hm.")
    roles = ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    for conversation in rows(workshop.folder / "sft.jsonl"):
        assert [message["role"] for message in conversation["messages"]] == roles
    for form in ("openai", "sharegpt", "trl"):
        (back,) = rows(workshop.folder / f"back-{form}-dpo.jsonl")
        assert [back[side] for side in ("prompt", "chosen", "rejected")] == [
            pair[side] for side in ("prompt", "chosen", "rejected")
        ]
        assert len(rows(workshop.folder / f"back-{form}-sft.jsonl")) == 2
    ale("data", "export", "--in", "raw.jsonl", "--out", "atif.jsonl", "--format", "atif")
    ale("data", "import", "atif.jsonl", "--out", "back.jsonl", "--format", "atif")
    assert [row["episode"] for row in rows(workshop.folder / "back.jsonl")] == [
        row["episode"] for row in rows(calling_in_text)
    ]
