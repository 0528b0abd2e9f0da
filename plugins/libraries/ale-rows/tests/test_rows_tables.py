"""Conversations, chunks, and the forms that rows are written in."""

import builtins
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import jsonschema
import pyarrow.parquet
import pytest

from ale.errors import InputError, NotUsableError, StoreError
from ale.runs import Registry
from ale.testing.builders import episode, turn
from ale.types import Episode, Message, ToolSpec, replace
from ale_rows import (
    DpoRow,
    EpisodeRow,
    RlRow,
    ScoredRow,
    SftRow,
    chat,
    collect,
    make_dpo,
    make_rl,
    make_sft,
    read_rows,
    read_tools,
    score,
    write_rows,
)
from ale_rows.schemas import json_schemas, main

from .conftest import acting, asked, tried

ROOT = Path(__file__).resolve().parents[4]
PUBLISHED = ROOT / "docs" / "reference"
SHELL = ToolSpec(name="shell", description="Run.", parameters={"type": "object", "x": [1, None]})


@pytest.fixture
def scored(tmp_path: Path, run: Any, registry: Registry) -> Any:
    """Put some episodes into a scored file."""

    def make(*episodes: Episode, chunker: str = "ale-lite") -> Path:
        collect([run(*episodes)], tmp_path / "raw.jsonl", tools=[SHELL])
        score(tmp_path / "raw.jsonl", tmp_path / "scored.jsonl", registry, chunker=chunker)
        return tmp_path / "scored.jsonl"

    return make


def sft(source: Path, **options: Any) -> list[SftRow]:
    out = source.with_name("sft.jsonl")
    make_sft(source, out, **options)
    return list(read_rows(out, SftRow))


def test_a_conversation_ends_with_its_last_answer(scored: Any, some: Sequence[Episode]) -> None:
    row = sft(scored(some[0]))[0]
    roles = [message.role for message in row.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert row.loss_weights == (0, 0, 1, 0, 1, 0, 1)
    assert row.reward == 1.0
    assert row.tools is not None
    assert row.tools[0].function.name == "shell"


def test_rejection_sampling_selects_by_reward(scored: Any, some: Sequence[Episode]) -> None:
    source = scored(*some)
    assert {row.reward for row in sft(source, min_reward=1.0)} == {1.0}
    report = make_sft(source, source.with_name("x.jsonl"), min_reward=1.0)
    assert dict(report.dropped) == {"reward below the minimum": 2}


def test_failures_are_imitated_only_if_asked_for(scored: Any, some: Sequence[Episode]) -> None:
    source = scored(*some)
    out = source.with_name("x.jsonl")
    report = make_sft(source, out)
    assert {row.reward for row in read_rows(out, SftRow)} == {1.0}
    (reason,) = report.dropped
    assert reason.startswith("reward below 1, so not imitated unless --min-reward")
    assert report.dropped[reason] == 2
    assert {row.reward for row in sft(source, min_reward=0)} == {0.0, 0.5, 1.0}


def test_answers_below_a_weight_are_not_trained_on(scored: Any, some: Sequence[Episode]) -> None:
    row = sft(scored(some[0], chunker="turns"), min_weight=-0.5)[0]
    # Three turns earn 1/3, 2/3 and 1 against a mean of 1.
    assert row.loss_weights == (0, 0, 0, 0, 1, 0, 1)


def test_a_new_context_is_a_new_conversation(scored: Any) -> None:
    again = asked("Count. So far: a.", turn("B."), turn("C."))
    made = tried(1.0, acting("A.", "ls"), *again)
    rows = sft(scored(made))
    assert [[m.content for m in row.messages if m.role == "assistant"] for row in rows] == [
        ["A."],
        ["B.", "C."],
    ]


def test_a_copied_answer_is_not_trained_on(scored: Any) -> None:
    example = Message(role="assistant", content="An example.")
    first = asked("Count.", turn("Mine."))[0]
    made = tried(1.0, turn("x"))
    turns = (replace(first, prompt=(*first.prompt, example)),)
    row = sft(scored(replace(made, trajectory=replace(made.trajectory, turns=turns))))[0]
    assert row.loss_weights == (0, 0, 0, 1)


def test_answers_that_did_nothing_are_not_trained_on(scored: Any) -> None:
    idle = replace(turn("I will look."), credited=False)
    reminded = Message(role="user", content="You made no call.")
    acted = replace(acting("", "ls"), prompt=(reminded,))
    gave_up = tried(0.0, idle, rollout=1)
    source = scored(tried(1.0, idle, acted, turn("Done.")), gave_up)
    for each in (source, source.with_name("raw.jsonl")):
        (row,) = sft(each, min_reward=0)
        assert row.loss_weights == (0, 0, 0, 0, 1, 0, 1)
    report = json.loads(source.with_name("sft.jsonl.report.json").read_text())
    assert report["dropped"] == {"no answer to learn from": 1}


def test_an_episode_without_turns_has_nothing_to_imitate(scored: Any) -> None:
    source = scored(episode(1.0), tried(1.0, turn("A."), rollout=1))
    assert len(sft(source)) == 1
    report = json.loads(source.with_name("sft.jsonl.report.json").read_text())
    assert report["dropped"] == {"no answer to learn from": 1}


def test_imitating_by_weight_needs_scores(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    collect([run(*some)], tmp_path / "raw.jsonl")
    with pytest.raises(InputError, match="have no weights"):
        sft(tmp_path / "raw.jsonl", min_weight=0.0)
    assert len(sft(tmp_path / "raw.jsonl", min_reward=0)) == 4


def rl(source: Path, **options: Any) -> list[RlRow]:
    out = source.with_name("rl.jsonl")
    make_rl(source, out, **options)
    return list(read_rows(out, RlRow))


def test_a_row_of_a_chunk_has_its_context_and_credit(scored: Any, some: Sequence[Episode]) -> None:
    rows = rl(scored(some[0]))
    first, call, *_ = rows
    turns = some[0].trajectory.turns
    assert [row.chunk for row in rows] == [0, 1, 3, 4]  # in chunk 2 the model wrote nothing
    assert first.prompt == call.prompt == tuple(map(chat, turns[0].prompt))
    assert first.completion[0].content == "I look."
    assert first.prefix is None
    assert call.prefix == chat(Message(role="assistant", content="I look."))
    assert call.completion[0].content == ""
    assert call.completion[0].tool_calls is not None
    assert [row.reward for row in rows] == [0.2, 0.4, 0.8, 1.0]
    assert len(rows[-1].prompt) == 6


def test_a_row_has_the_tokens_of_its_chunk(scored: Any) -> None:
    row = rl(scored(tried(1.0, turn("A.", tokens=3)), chunker="turns"))[0]
    assert row.tokens is not None
    assert row.tokens[0].prompt_ids == (1, 2, 3)
    assert row.tokens[0].ids == (10, 11, 12)
    assert row.tokens[0].logprobs == (-0.5,) * 3


def test_a_chunk_over_several_contexts_is_a_row_for_each(scored: Any) -> None:
    again = asked("Count. So far: a.", turn("B.", tokens=2), turn("C.", tokens=1))
    made = tried(1.0, acting("A.", "ls", tokens=3), acting("", "cat a"), *again)
    source = scored(made, chunker="whole")
    first, second = rl(source)
    turns = made.trajectory.turns
    assert [m.role for m in first.completion] == ["assistant", "tool", "assistant"]
    assert first.prompt == tuple(map(chat, turns[0].prompt))
    assert [m.content for m in second.completion] == ["B.", "C."]
    assert second.prompt == tuple(map(chat, turns[2].prompt))
    assert first.tokens is None, "its second turn has no tokens"
    assert second.tokens is not None
    assert [len(each.ids) for each in second.tokens] == [2, 1]
    assert (first.chunk, first.weight) == (second.chunk, second.weight)
    report = json.loads(source.with_name("rl.jsonl.report.json").read_text())
    assert report["read"] == 1
    assert report["notes"]["chunks over several contexts, a row for each context"] == 1


def test_chunks_below_a_minimum_weight_can_be_skipped(scored: Any, some: Sequence[Episode]) -> None:
    rows = rl(scored(some[0]), min_abs_weight=0.5)
    assert [row.chunk for row in rows] == [0, 1]


def rows_of_each_kind(source: Path) -> list[tuple[Path, Any]]:
    """Files of all kinds, made of one scored file."""
    dpo, chats, chunks = (source.with_name(f"{name}.jsonl") for name in ("dpo", "sft", "rl"))
    make_dpo(source, dpo, pairing="same-prompt")
    make_sft(source, chats)
    make_rl(source, chunks)
    raw = source.with_name("raw.jsonl")
    pairs = [(raw, EpisodeRow), (source, ScoredRow), (dpo, DpoRow), (chats, SftRow)]
    return [*pairs, (chunks, RlRow)]


def test_files_match_the_published_schemas(scored: Any, some: Sequence[Episode]) -> None:
    some = [*some, tried(0.0, turn("A.", tokens=3), rollout=7)]
    for path, kind in rows_of_each_kind(scored(*some)):
        (name,) = [
            name for name, made in json_schemas().items() if made["$ref"].endswith(kind.__name__)
        ]
        schema = json.loads((PUBLISHED / name).read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        lines = path.read_text().splitlines()
        assert lines
        for line in lines:
            validator.validate(json.loads(line))
        wrong = {**json.loads(lines[0]), "schema": 2}
        assert not validator.is_valid(wrong)


def test_the_published_schemas_are_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["schemas", str(tmp_path)])
    main()
    for path in tmp_path.iterdir():
        assert path.read_text() == (PUBLISHED / path.name).read_text(), (
            "run: python -m ale_rows.schemas docs/reference"
        )


def test_a_table_has_the_same_rows(scored: Any, some: Sequence[Episode]) -> None:
    for path, kind in rows_of_each_kind(scored(*some))[2:]:
        rows = list(read_rows(path, kind))
        for name in ("table.parquet", "table"):
            assert write_rows(rows, path.with_name(name), kind) == len(rows)
            assert list(read_rows(path.with_name(name), kind)) == rows


def test_a_table_without_rows_is_read(scored: Any) -> None:
    source = scored(episode(0.0))
    for name in ("empty", "empty.parquet"):
        out = source.with_name(name)
        make_sft(source, out)
        assert list(read_rows(out, SftRow)) == []


def test_hugging_face_datasets_loads_each_form(scored: Any, some: Sequence[Episode]) -> None:
    source = scored(*some)
    make_dpo(source, source.with_name("d.jsonl"), pairing="same-prompt")
    make_dpo(source, source.with_name("d.parquet"), pairing="same-prompt")
    make_dpo(source, source.with_name("d"), pairing="same-prompt")
    folder = datasets.load_from_disk(str(source.with_name("d")))
    table = pyarrow.parquet.read_table(source.with_name("d.parquet")).to_pylist()
    assert folder.num_rows == len(table) == 2
    assert list(folder) == table
    assert folder[0]["prompt"][0]["role"] == "system"
    assert folder[0]["chosen"][0]["content"] == "I look."
    assert json.loads(folder[0]["tools"])[0]["function"]["name"] == "shell"


def test_only_a_data_set_folder_is_replaced(scored: Any, some: Sequence[Episode]) -> None:
    source = scored(*some)
    out = source.with_name("data")
    assert make_sft(source, out, min_reward=0.0).written == 4
    assert make_sft(source, out).written == 2
    assert len(list(read_rows(out, SftRow))) == 2
    other = source.with_name("precious")
    other.mkdir()
    with pytest.raises(InputError, match="is not replaced"):
        make_sft(source, other)
    assert list(other.iterdir()) == []
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not replaced"):
        make_sft(source, out)
    assert (out / "notes.txt").exists()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_never_replaces_a_folder(tmp_path: Path, form: Any) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "precious").write_text("mine")
    with pytest.raises(InputError, match="runs is a folder; a file is to be written"):
        write_rows([], tmp_path / "runs", SftRow, form=form)
    assert (tmp_path / "runs" / "precious").read_text() == "mine"


def test_an_unknown_suffix_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.csv"):
        write_rows([], tmp_path / "a.csv", SftRow)


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(NotUsableError, match=r"pyarrow .* pip install 'pyarrow>=17'"):
        write_rows([], tmp_path / "a.parquet", SftRow)
    with pytest.raises(NotUsableError, match=r"datasets .* pip install 'datasets>=3'"):
        write_rows([], tmp_path / "a", SftRow)


def test_files_are_written_atomically(tmp_path: Path) -> None:
    out = tmp_path / "sft.jsonl"
    out.write_text("before\n")

    def broken() -> Any:
        yield from ()
        raise builtins.OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        write_rows(broken(), out, SftRow)
    assert out.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [out]


def test_tools_are_read_in_the_format_of_chat_completions(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    function = {"name": "shell", "description": "Run.", "parameters": {"type": "object"}}
    path.write_text(json.dumps([{"type": "function", "function": function}]))
    assert read_tools(path) == (
        ToolSpec(name="shell", description="Run.", parameters={"type": "object"}),
    )
    path.write_text('[{"name": "shell"}]')
    with pytest.raises(InputError, match=r"tools.json: \[0\]"):
        read_tools(path)
