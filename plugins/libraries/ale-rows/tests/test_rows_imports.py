"""Files as they are found: damaged, of other programs, with keys that change what a row means."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale_rows import DpoRow, EpisodeRow, import_rows, make_sft, read_rows

ASKED = {"role": "user", "content": "What is 2+2?"}
WRONG = {"role": "assistant", "content": "5"}
RIGHT = {"role": "assistant", "content": "4"}
CHAT = {"messages": [ASKED, RIGHT]}
TALK = {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}


def lines(path: Path, *items: Any) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def imported(path: Path, form: Any) -> list[EpisodeRow]:
    out = path.with_name("out.jsonl")
    import_rows([path], out, form=form)
    return list(read_rows(out, EpisodeRow))


@pytest.mark.parametrize(
    ("form", "item"),
    [
        ("trl", {"prompt": [ASKED], "completion": [RIGHT]}),
        ("trl", {"prompt": "2+2?", "completion": "4"}),
        ("openai", CHAT),
        ("sharegpt", TALK),
    ],
)
@pytest.mark.parametrize("key", ["label", "kto_tag"])
def test_a_rejected_answer_is_not_imitated(
    tmp_path: Path, form: Any, item: dict[str, Any], key: str
) -> None:
    path = lines(tmp_path / "a.jsonl", {**item, key: True}, {**item, key: False}, {**item, key: 0})
    out, sft = tmp_path / "out.jsonl", tmp_path / "sft.jsonl"
    report = import_rows([path], out, form=form)
    reason = f"a rejected answer ('{key}' is false), which is not to be imitated"
    assert (report.written, dict(report.dropped)) == (1, {reason: 2})
    assert report.lines_left_out == {reason: [f"{path}:2", f"{path}:3"]}
    assert f"{path}:2" in "\n".join(report.lines())
    assert make_sft(out, sft).written == 1


def test_a_file_of_rejected_answers_alone_is_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"prompt": [ASKED], "completion": [WRONG], "label": False})
    with pytest.raises(InputError, match="a rejected answer"):
        imported(path, "trl")


@pytest.mark.parametrize(
    ("form", "item", "reason"),
    [
        ("trl", {**CHAT, "label": "bad"}, "'label' is neither true nor false"),
        ("openai", {**CHAT, "weight": 0.5}, "a 'weight' other than 1"),
        ("openai", {"messages": [ASKED, {**RIGHT, "weight": 0.5}]}, "a 'weight' other than 0 and"),
        ("openai", {**CHAT, "images": ["a.png"]}, "images"),
        ("trl", {**CHAT, "images": ["a.png"]}, "images"),
        ("sharegpt", {**TALK, "videos": ["a.mp4"]}, "images"),
        ("openai", {"messages": [ASKED, {**RIGHT, "content": [{"type": "tool_use"}]}]}, "tool_use"),
        ("trl", {"chosen": "4", "rejected": "5"}, "a preference, as none before"),
    ],
)
def test_what_a_row_cannot_hold_with_its_meaning_is_left_out(
    tmp_path: Path, form: Any, item: dict[str, Any], reason: str
) -> None:
    path = lines(tmp_path / "a.jsonl", TALK if form == "sharegpt" else CHAT, item)
    report = import_rows([path], tmp_path / "out.jsonl", form=form)
    ((found, n),) = report.dropped.items()
    assert reason in found
    assert (report.written, n) == (1, 1)


@pytest.mark.parametrize("key", ["weight", "loss_weight", "train", "training"])
@pytest.mark.parametrize("form", ["openai", "trl"])
def test_an_answer_that_is_not_to_be_trained_on_is_a_part_of_the_prompt(
    tmp_path: Path, form: Any, key: str
) -> None:
    messages = [ASKED, {**WRONG, key: 0}, {"role": "user", "content": "Sure?"}, {**RIGHT, key: 1}]
    (row,) = imported(lines(tmp_path / "a.jsonl", {"messages": messages, "images": []}), form)
    (turn,) = row.episode.trajectory.turns
    assert [message.content for message in turn.prompt] == ["What is 2+2?", "5", "Sure?"]


@pytest.mark.parametrize("form", ["openai", "trl"])
def test_parts_of_llama_factory_are_read(tmp_path: Path, form: Any) -> None:
    call = json.dumps({"name": "shell", "arguments": {"a": 1}})
    answer = [
        {"type": "reasoning", "value": "Hm."},
        {"type": "text", "value": "I look."},
        {"type": "tool_call", "value": call},
    ]
    asked = [{"type": "text", "value": "Look "}, {"type": "text", "text": "here."}]
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    (row,) = imported(lines(tmp_path / "a.jsonl", {"messages": messages}), form)
    (turn,) = row.episode.trajectory.turns
    made = turn.completion.message
    assert turn.prompt[0].content == "Look here."
    assert (made.reasoning, made.content, made.tool_calls[0].name) == ("Hm.", "I look.", "shell")


def test_thinking_refusals_and_a_system_of_the_item_are_read(tmp_path: Path) -> None:
    thought = {**RIGHT, "thinking": "Two and two."}
    refused = {"role": "assistant", "content": None, "refusal": "I won't."}
    items = [{"messages": [ASKED, each], "system": "Be brief."} for each in (thought, refused)]
    first, second = (
        row.episode.trajectory.turns[0]
        for row in imported(lines(tmp_path / "a.jsonl", *items), "trl")
    )
    assert first.completion.message.reasoning == "Two and two."
    assert second.completion.message.content == "I won't."
    assert [message.role for message in first.prompt] == ["system", "user"]


def test_keys_that_are_not_read_are_named(tmp_path: Path) -> None:
    item = {"messages": [{**ASKED, "name": "bob"}, RIGHT], "reward": 0.0, "tools": []}
    many = {f"key-{n}": 1 for n in range(40)}
    path = lines(tmp_path / "a.jsonl", item, item, {**CHAT, **many})
    report = import_rows([path], tmp_path / "out.jsonl", form="openai")
    assert report.notes["items with 'reward', which is not read"] == 2
    assert report.notes["items with 'name' of 'messages', which is not read"] == 2
    assert report.notes["items with further keys, which are not read"] > 1
    assert len(report.notes) < 25


def test_a_damaged_line_is_left_out_and_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", CHAT, CHAT)
    whole = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + whole + b"\n[1]\n\xff\n" + whole[:20])
    report = import_rows([path], tmp_path / "out.jsonl", form="openai")
    assert (report.read, report.written) == (5, 2)
    assert {
        reason: [each.rpartition(":")[2] for each in where]
        for reason, where in report.lines_left_out.items()
    } == {
        "expected an object": ["4"],
        "a line that is not JSON: it is damaged or was edited": ["6"],
        "a line that is not UTF-8": ["5"],
    }


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([CHAT]), encoding="utf-8-sig")
    assert len(imported(path, "openai")) == 1


def test_a_preference_keeps_its_order_and_its_system(tmp_path: Path) -> None:
    item = {"prompt": [ASKED], "chosen": [RIGHT], "rejected": [WRONG], "system": "Be brief."}
    import_rows([lines(tmp_path / "a.jsonl", item)], tmp_path / "out.jsonl", form="trl")
    (row,) = read_rows(tmp_path / "out.jsonl", DpoRow)
    assert (row.prompt[0].role, row.chosen[0].content, row.rejected[0].content) == (
        "system",
        "4",
        "5",
    )


def test_files_of_other_programs_are_named(tmp_path: Path) -> None:
    log, renamed = tmp_path / "log.eval", tmp_path / "log.jsonl"
    for path in (log, renamed):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", "{}")
            archive.writestr("samples/1_epoch_1.json", "{}")
    for path in (log, renamed):
        with pytest.raises(InputError, match=r"a log of Inspect AI, whose samples are in a zip"):
            imported(path, "openai")
    items = {
        "log of Inspect AI": {"version": 2, "eval": {"task": "a"}, "samples": []},
        "trajectory of SWE-agent": {"trajectory": [], "history": [], "info": {}},
        "Alpaca": {"instruction": "a", "output": "b"},
    }
    for what, item in items.items():
        path = tmp_path / "a.traj"
        path.write_text(json.dumps(item))
        with pytest.raises(InputError, match=what) as refused:
            imported(path, "openai")
        assert "--format" in str(refused.value)
    (tmp_path / "a.jsonl").write_text(json.dumps(CHAT), encoding="utf-16")
    with pytest.raises(InputError, match="text in UTF-16; expected JSON"):
        imported(tmp_path / "a.jsonl", "openai")
