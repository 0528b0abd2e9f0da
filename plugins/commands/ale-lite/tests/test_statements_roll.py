"""From a stored run to preference pairs: statements 4 to 6, 63 and 65 to 67, by number."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from ale.testing.openai_server import openai_server
from ale_lite import scripts

FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}


def calls(*commands: str) -> list[dict[str, Any]]:
    steps = [{"calls": [{"name": "shell", "arguments": {"command": text}}]} for text in commands]
    return [*steps, FINISH]


STORIES: dict[str, Sequence[dict[str, Any]]] = {
    "good": calls("true", "touch done"),
    # The command that fails is an error of its own chunk.
    "slip": calls("cat nothing", "touch done"),
    "lost": calls("true"),
    "one-chunk": [FINISH],
}
REWARDS = {"good": 1.0, "slip": 1.0, "lost": 0.0, "one-chunk": 0.0}
OUTPUTS = {"collect": "raw", "ipa-score": "ipa_scored", "make-dpo": "dpo"}


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory, new_desk: Any) -> Any:
    """Two runs of `tbp`, and the three commands of `roll` over them, with the document's names."""
    desk = new_desk(tmp_path_factory.mktemp("rolled"))
    conversations = []
    for name, steps in STORIES.items():
        desk.task(name)
        conversations.append({"match": f"Do {name}\\.", "steps": steps})
    with openai_server({"conversations": conversations}) as server:
        desk.config(server.url)
        for _ in range(2):
            done = desk.tbp()
            assert done.code == 0, done.text
    source = ("--runs", "runs/")
    for stage, name in OUTPUTS.items():
        done = desk.run("roll", stage, *source, "--out", f"datasets/{name}.jsonl")
        assert done.code == 0, done.text
        source = ("--in", f"datasets/{name}.jsonl")
    return desk


def rows(rolled: Any, name: str) -> list[dict[str, Any]]:
    text = (rolled.folder / "datasets" / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def report(rolled: Any, name: str) -> dict[str, Any]:
    path = rolled.folder / "datasets" / f"{name}.jsonl.report.json"
    made: dict[str, Any] = json.loads(path.read_text())
    return made


def test_s04_roll_collect_gathers_every_run_of_the_folder(rolled: Any) -> None:
    found = rows(rolled, "raw")
    assert len({row["run"] for row in found}) == 2
    rewards = sorted((row["episode"]["task_id"], row["episode"]["reward"]) for row in found)
    assert rewards == sorted(2 * list(REWARDS.items()))


def test_s05_roll_ipa_score_gives_every_chunk_its_credit(rolled: Any) -> None:
    for row in rows(rolled, "ipa_scored"):
        assert (row["chunker"], row["scheme"]) == ("ale-lite", "ipa-lite")
        assert len(row["chunks"]) == len(row["credit"]["weights"]) >= 1


def test_s06_roll_make_dpo_writes_pairs(rolled: Any) -> None:
    assert {row["task"] for row in rows(rolled, "dpo")} == {"good", "slip"}


def test_s63_the_advantage_is_the_chunks_reward_less_the_mean_over_the_file(rolled: Any) -> None:
    mean = sum(REWARDS.values()) / len(REWARDS)
    for row in rows(rolled, "ipa_scored"):
        assert row["batch"]["mean_reward"] == mean
        credit = row["credit"]
        expected = [reward - mean for reward in credit["rewards"]]
        assert credit["weights"] == pytest.approx(expected)


def test_s62_a_tool_error_lowers_its_own_chunk_alone(rolled: Any) -> None:
    by_task = {
        row["episode"]["task_id"]: row["credit"]["rewards"] for row in rows(rolled, "ipa_scored")
    }
    lowered = [good - slip for good, slip in zip(by_task["good"], by_task["slip"], strict=True)]
    assert lowered == pytest.approx([0.1, 0.0, 0.0])


def test_s65_a_pair_is_the_highest_and_the_lowest_rewarded_chunk(rolled: Any) -> None:
    scored = {
        (row["run"], row["episode"]["task_id"]): row["credit"]["rewards"]
        for row in rows(rolled, "ipa_scored")
    }
    for row in rows(rolled, "dpo"):
        rewards = scored[row["chosen_from"]["run"], row["task"]]
        assert row["chosen_from"]["chunk"] == rewards.index(max(rewards))
        assert row["rejected_from"]["chunk"] == rewards.index(min(rewards))
        assert (row["chosen_from"]["value"], row["rejected_from"]["value"]) == (
            max(rewards),
            min(rewards),
        )


def test_s66_ties_and_single_chunks_are_skipped_and_counted(rolled: Any) -> None:
    counts = report(rolled, "dpo")
    assert (counts["read"], counts["written"]) == (8, 4)
    assert counts["dropped"] == {
        "tie: all chunks earned the same": 2,
        "fewer than two chunks with an answer of the model": 2,
    }


def test_s67_a_row_has_prompt_chosen_and_rejected(rolled: Any) -> None:
    for row in rows(rolled, "dpo"):
        assert row["pairing"] == "same-trajectory"
        assert [message["role"] for message in row["prompt"]][:2] == ["system", "user"]
        assert row["chosen"] != row["rejected"]
        assert {row[side][0]["role"] for side in ("chosen", "rejected")} == {"assistant"}


def test_s67_same_prompt_is_offered_beside_it_and_recommended(rolled: Any) -> None:
    out = ("--out", "datasets/same_prompt.jsonl")
    source = ("--in", "datasets/ipa_scored.jsonl")
    done = rolled.run("ale", "data", "dpo", *source, *out, "--pairing", "same-prompt")
    assert done.code == 0, done.text
    assert "ale data dpo" in rolled.run("roll", "make-dpo", "--help").out


@pytest.mark.parametrize("stage", [*OUTPUTS])
def test_what_is_not_there_is_refused_with_its_name(desk: Any, stage: str) -> None:
    flag = "--runs" if stage == "collect" else "--in"
    done = desk.run("roll", stage, flag, "absent", "--out", "out.jsonl")
    assert done.code == 2, done.text
    assert "absent" in done.err
    assert not (desk.folder / "out.jsonl").exists()


def test_s07_training_is_that_of_ale(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[list[str]] = []
    monkeypatch.setattr(scripts, "find_spec", lambda name: object())
    monkeypatch.setattr(scripts, "ale", lambda arguments, names: handed.append(arguments))
    done = CliRunner().invoke(scripts.roll, ["train-dpo", "--config", "dpo.yaml"])
    assert done.exit_code == 0, done.output
    assert handed == [["train", "dpo", "--", "dpo.yaml"]]


def test_s70_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scripts, "find_spec", lambda name: None)
    done = CliRunner().invoke(scripts.roll, ["train-dpo", "--config", "dpo.yaml"])
    assert done.exit_code == 1
    assert "ale-trainer-trl" in done.output
    assert "pip install 'ale-lite[train]'" in done.output


@pytest.mark.parametrize(
    ("command", "hint"),
    [("make-dpo", "roll ipa-score"), ("ipa-score", "roll collect")],
)
def test_the_hints_of_roll_name_commands_of_roll(desk: Any, command: str, hint: str) -> None:
    desk.write("rows.jsonl", '{"schema": 1, "kind": "sft"}\n')
    refused = desk.run("roll", command, "--in", "rows.jsonl", "--out", "out.jsonl")
    assert refused.code == 2
    assert hint in refused.err
    assert "ale " not in refused.err.replace("ale-", "")
