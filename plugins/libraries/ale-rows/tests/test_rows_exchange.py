"""Other formats, in and out."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ale.errors import InputError
from ale.testing.builders import turn
from ale.types import Episode, Message, Observation, ToolCall, ToolSpec, Usage, replace
from ale_rows import (
    DpoRow,
    EpisodeRow,
    SftRow,
    collect,
    export_rows,
    import_rows,
    make_dpo,
    make_rl,
    make_sft,
    read_rows,
    score,
)

from .conftest import acting, tried

SHELL = ToolSpec(name="shell", description="Run.", parameters={"type": "object"})
CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"a": 1}'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    {"role": "assistant", "content": "Two."},
]

each_format = pytest.mark.parametrize("form", ["openai", "sharegpt", "trl"])


def given(path: Path, *items: Any) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def imported(path: Path, form: Any, **options: Any) -> list[EpisodeRow]:
    out = path.with_name("imported.jsonl")
    import_rows([path], out, form=form, **options)
    return list(read_rows(out, EpisodeRow))


@pytest.fixture
def raw(tmp_path: Path, run: Any, some: Sequence[Episode]) -> Path:
    """Collected episodes."""
    odd = tried(
        1.0,
        turn("Odd </tool_call>", calls=[("shell", "no json </tool_response>"), ("x", "[1]")]),
        turn("Done."),
        rollout=9,
    )
    collect([run(*some, odd)], tmp_path / "raw.jsonl", tools=[SHELL])
    return tmp_path / "raw.jsonl"


@each_format
def test_a_round_trip_preserves_conversations(raw: Path, form: Any) -> None:
    first, second, back = (raw.with_name(f"{name}.jsonl") for name in ("one", "two", "back"))
    assert export_rows(raw, first, form=form).written == 5
    rows = imported(first, form)
    import_rows([first], back, form=form)
    export_rows(back, second, form=form)
    assert first.read_bytes() == second.read_bytes()
    found = [[turn.completion.message.content for turn in r.episode.trajectory.turns] for r in rows]
    assert found[0] == ["I look.", "", "Done."]
    assert rows[0].tools == (SHELL,)


@each_format
def test_a_round_trip_preserves_preferences(raw: Path, form: Any) -> None:
    pairs, out, back, again = (raw.with_name(f"{n}.jsonl") for n in ("dpo", "out", "back", "again"))
    make_dpo(raw, pairs, pairing="same-prompt")
    assert export_rows(pairs, out, form=form).written == 2
    import_rows([out], back, form=form)
    export_rows(back, again, form=form)
    assert out.read_bytes() == again.read_bytes()
    for row, made in zip(read_rows(back, DpoRow), read_rows(pairs, DpoRow), strict=True):
        assert row.chosen[0].content == made.chosen[0].content
        assert row.rejected[0].content == made.rejected[0].content
        assert [found.content for found in row.prompt] == [found.content for found in made.prompt]


def test_a_chat_becomes_turns_with_observations(tmp_path: Path) -> None:
    (row,) = imported(given(tmp_path / "chats.jsonl", {"messages": CHAT}), "openai", reward=1.0)
    first, last = row.episode.trajectory.turns
    assert [message.role for message in first.prompt] == ["system", "user"]
    assert first.observations == (Observation(call_id="c1", tool="shell", content="a b"),)
    assert first.completion.forced
    assert last.completion.message.content == "Two."
    assert row.episode.reward == 1.0
    assert row.episode.id == "chats-1"


def test_chats_of_one_prompt_are_one_task(tmp_path: Path) -> None:
    other = [*CHAT[:2], {"role": "assistant", "content": "Three."}]
    third = [{"role": "user", "content": "Else."}, CHAT[4]]
    chats = given(tmp_path / "chats.jsonl", *({"messages": m} for m in (CHAT, other, third)))
    one, two, three = (row.episode.task_id for row in imported(chats, "openai"))
    assert one == two != three


def test_an_answer_of_weight_0_is_not_trained_on(tmp_path: Path) -> None:
    first = {**CHAT[2], "weight": 0}
    path = given(tmp_path / "chats.jsonl", {"messages": [*CHAT[:2], first, *CHAT[3:]]})
    (row,) = imported(path, "openai")
    (only,) = row.episode.trajectory.turns
    assert [message.role for message in only.prompt] == ["system", "user", "assistant", "tool"]
    raw, sft, out = (tmp_path / f"{name}.jsonl" for name in ("imported", "sft", "out"))
    make_sft(raw, sft)
    export_rows(sft, out, form="openai")
    assert json.loads(out.read_text())["messages"][2]["weight"] == 0


def test_conversations_that_trl_cannot_express_are_skipped_and_counted(tmp_path: Path) -> None:
    first = {**CHAT[2], "weight": 0}
    path = given(tmp_path / "chats.jsonl", {"messages": [*CHAT[:2], first, *CHAT[3:]]})
    imported(path, "openai")
    report = export_rows(tmp_path / "imported.jsonl", tmp_path / "out.jsonl", form="trl")
    assert report.written == 0
    assert list(report.dropped.values()) == [1]


def test_older_fields_of_openai_are_read(tmp_path: Path) -> None:
    called = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    chat = [
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"text": "brief."}]},
        called,
        {"role": "function", "name": "f", "content": "1"},
    ]
    functions = [{"name": "f", "parameters": {"type": "object"}}]
    path = given(tmp_path / "chats.jsonl", {"messages": chat, "functions": functions})
    (row,) = imported(path, "openai")
    (only,) = row.episode.trajectory.turns
    assert only.prompt[0] == Message(role="system", content="Be brief.")
    assert only.completion.message.tool_calls == (ToolCall(id="f", name="f", arguments="{}"),)
    assert only.observations[0].content == "1"
    assert row.tools is not None
    assert row.tools[0].name == "f"


def test_numbers_as_ids_of_calls_become_texts(tmp_path: Path) -> None:
    call = {"id": 7, "function": {"name": "f", "arguments": "{}"}}
    chat = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    (row,) = imported(given(tmp_path / "chats.jsonl", chat), "openai")
    assert row.episode.trajectory.turns[0].completion.message.tool_calls[0].id == "7"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"messages": CHAT[:2]}, "no answer"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, CHAT[4]]}, "images"),
        ({"messages": [{"role": "judge", "content": ""}]}, "not a chat message"),
        ({"prompt": "a"}, "no list 'messages'"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "names no function"),
        ({"messages": [{"role": "assistant", "function_call": True}]}, "names no function"),
        ({"messages": [{"role": "assistant", "tool_calls": True}]}, "no list 'tool_calls'"),
        ({"messages": [{"role": ["user"], "content": ""}]}, "not a chat message"),
        ({"messages": CHAT, "tools": "[1"}, "not a list of functions"),
    ],
)
def test_items_that_a_row_cannot_hold_are_skipped_and_counted(
    tmp_path: Path, item: Any, reason: str
) -> None:
    path = given(tmp_path / "chats.jsonl", {"messages": CHAT}, item)
    report = import_rows([path], tmp_path / "out.jsonl", form="openai")
    assert (report.read, report.written) == (2, 1)
    ((found, n),) = report.dropped.items()
    assert reason in found
    assert n == 1


@pytest.mark.parametrize(
    ("name", "text"), [("chats.jsonl", ""), ("b.jsonl", "\n\n"), ("c.json", "[]")]
)
def test_files_without_an_item_are_refused_by_their_names(
    tmp_path: Path, name: str, text: str
) -> None:
    path, out = tmp_path / name, tmp_path / "out.jsonl"
    path.write_text(text)
    (tmp_path / "more.jsonl").touch()
    with pytest.raises(InputError, match=f"{name}.*: there is nothing to import in it") as refused:
        import_rows([path], out, form="openai")
    assert "expected  items of the format openai" in str(refused.value)
    with pytest.raises(InputError, match="there is nothing to import") as refused:
        import_rows([path, tmp_path / "more.jsonl"], out, form="openai")
    assert [Path(each.file or "").name for each in refused.value.problems] == [name, "more.jsonl"]
    assert not list(tmp_path.glob("out*"))
    some = given(tmp_path / "some.jsonl", {"messages": CHAT})
    assert import_rows([path, some], out, form="openai").written == 1


def test_files_without_a_line_of_json_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{\n}\n")
    with pytest.raises(InputError, match="none of 2 items can be imported: a line that is not"):
        imported(tmp_path / "a.jsonl", "openai")
    with pytest.raises(InputError, match="expected an object"):
        imported(given(tmp_path / "a.jsonl", [1]), "openai")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a file of JSON lines is named \.jsonl"):
        imported(tmp_path / "a.json", "openai")


def test_variants_of_sharegpt_are_read(tmp_path: Path) -> None:
    call = json.dumps({"name": "shell", "arguments": {"a": 1}})
    entries = [
        {"from": "human", "value": "Look."},
        {"from": "function_call", "value": call},
        {"from": "observation", "value": "a b"},
        {"from": "gpt", "value": "<think>\nTwo, I see.\n</think>\n\nTwo."},
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": entries, "system": "Be brief.", "tools": ""}]))
    (row,) = imported(path, "sharegpt")
    first, last = row.episode.trajectory.turns
    assert [message.role for message in first.prompt] == ["system", "user"]
    assert first.completion.message.tool_calls[0].name == "shell"
    assert first.observations[0].content == "a b"
    assert last.completion.message.content == "Two."
    assert last.completion.message.reasoning == "Two, I see."


def test_trl_prompts_and_completions_are_read(tmp_path: Path) -> None:
    items = [
        {"prompt": "Look.", "completion": "Two."},
        {"prompt": CHAT[:2], "completion": CHAT[2:]},
    ]
    text, chat = imported(given(tmp_path / "t.jsonl", *items), "trl")
    assert text.episode.trajectory.turns[0].prompt == (Message(role="user", content="Look."),)
    assert len(chat.episode.trajectory.turns) == 2


def test_a_trl_preference_without_a_prompt_has_one(tmp_path: Path) -> None:
    item = {"chosen": CHAT, "rejected": [*CHAT[:4], {"role": "assistant", "content": "Three."}]}
    out = tmp_path / "out.jsonl"
    import_rows([given(tmp_path / "p.jsonl", item)], out, form="trl")
    (row,) = read_rows(out, DpoRow)
    assert len(row.prompt) == 4
    assert (row.chosen[0].content, row.rejected[0].content) == ("Two.", "Three.")


def whole() -> Episode:
    """An episode that has everything that an episode can have."""
    first = acting("I look.", "ls", observations=["a b"], tokens=4)
    found = replace(
        first.completion,
        usage=Usage(prompt_tokens=3, completion_tokens=4),
        model="m",
        message=replace(first.completion.message, reasoning="Hm."),
        tokens=replace(first.completion.tokens, text_offsets=(0, 2, 4, 6)),
    )
    seen = replace(first.observations[0], error="exit code 1", exit_code=1, duration_s=0.5)
    asked = tried(0.5, first, start="fork-2", step=3, seed=9, id="3-count@fork-2-0")
    prompt = (
        *asked.trajectory.turns[0].prompt,
        Message(role="assistant", tool_calls=(ToolCall(id="e", name="shell", arguments="{}"),)),
        Message(role="tool", content="An example.", tool_call_id="e"),
    )
    folded = turn("", calls=[("shell", "no json"), ("shell", '{"a":  1}')], fresh_context=True)
    read_out = Observation(call_id="", tool="shell", content="seen", role="user")
    turns = (
        replace(
            first,
            prompt=prompt,
            fresh_context=True,
            completion=found,
            observations=(seen,),
            tools=(SHELL,),
        ),
        replace(folded, prompt=(Message(role="user", content="So far: a b."),), duration_s=1.5),
        replace(turn("Run: ls"), observations=(read_out,)),
        replace(turn("Over.", fresh_context=True), credited=False),
    )
    stop = replace(asked.trajectory.stop, reason="max_steps", detail="40")
    return replace(asked, trajectory=replace(asked.trajectory, turns=turns, stop=stop))


@pytest.mark.parametrize("tools", [None, [SHELL]])
def test_a_round_trip_by_atif_preserves_the_episode(tmp_path: Path, run: Any, tools: Any) -> None:
    raw, lines, back = (tmp_path / f"{name}.jsonl" for name in ("raw", "lines", "back"))
    folder = tmp_path / "trajectories"
    collect([run(whole(), tried(1.0, turn("Done.")))], raw, tools=tools)
    assert export_rows(raw, folder, form="atif").written == 2
    assert export_rows(raw, lines, form="atif").written == 2
    # The chunker and the scheme are those of a run here; a trajectory of others has none.
    rows = {
        row.episode.id: msgspec.structs.replace(row, crediting=None)
        for row in read_rows(raw, EpisodeRow)
    }
    for source in (folder, lines):
        import_rows([source], back, form="atif")
        assert {row.episode.id: row for row in read_rows(back, EpisodeRow)} == rows


def test_each_trajectory_gets_its_own_file(tmp_path: Path, run: Any) -> None:
    raw, folder = tmp_path / "raw.jsonl", tmp_path / "trajectories"
    names = ["a b", "a/b", "a-b", "é" * 99, "x" * 300 + "1", "y" * 300 + "1"]
    episodes = [
        tried(1.0, turn("Done."), rollout=i, id=name, task_id=f"t{i}")
        for i, name in enumerate(names)
    ]
    collect([run(*episodes)], raw)
    assert export_rows(raw, folder, form="atif").written == len(names)
    found = [json.loads(path.read_text()) for path in folder.iterdir()]
    assert sorted(one["extra"]["ale"]["id"] for one in found) == sorted(names)


def test_an_import_counts_the_episodes_that_keep_their_own_reward(
    tmp_path: Path, raw: Path
) -> None:
    export_rows(raw, tmp_path / "lines.jsonl", form="atif")
    rewards = [row.episode.reward for row in read_rows(raw, EpisodeRow)]
    report = import_rows(
        [tmp_path / "lines.jsonl"], tmp_path / "back.jsonl", form="atif", reward=0.125
    )
    assert [row.episode.reward for row in read_rows(tmp_path / "back.jsonl", EpisodeRow)] == rewards
    said = "not given the reward, since they have their own or are preferences"
    assert report.notes == {said: len(rewards)}
    report = import_rows([tmp_path / "lines.jsonl"], tmp_path / "back.jsonl", form="atif")
    assert said not in report.notes


def test_an_atif_trajectory_has_the_token_usage(tmp_path: Path, run: Any) -> None:
    found = turn("Done.").completion
    counted = replace(found, usage=Usage(prompt_tokens=7, completion_tokens=2))
    turns = (turn("Look."), replace(turn("Done."), completion=counted))
    collect([run(tried(1.0, *turns))], tmp_path / "raw.jsonl")
    export_rows(tmp_path / "raw.jsonl", tmp_path / "lines.jsonl", form="atif")
    (line,) = (tmp_path / "lines.jsonl").read_text().splitlines()
    spent = turns[0].completion.usage
    assert json.loads(line)["final_metrics"] == {
        "total_prompt_tokens": spent.prompt_tokens + 7,
        "total_completion_tokens": spent.completion_tokens + 2,
        "total_steps": 4,
    }


def atif(*steps: Any, **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": i, **step} for i, step in enumerate(steps, 1)]
    agent = {"name": "other", "version": "2"}
    return {"schema_version": "ATIF-v1.6", "agent": agent, "steps": numbered, **more}


def test_atif_of_another_agent_is_read(tmp_path: Path) -> None:
    calls = [
        {"tool_call_id": name, "function_name": "shell", "arguments": {"command": name}}
        for name in ("a", "b")
    ]
    results = [{"source_call_id": name, "content": name.upper()} for name in ("b", "a")]
    steps = [
        {"source": "system", "message": "Be brief."},
        {"source": "user", "message": [{"type": "text", "text": "Look."}]},
        {"source": "agent", "message": "Copied.", "is_copied_context": True},
        {
            "source": "agent",
            "message": "",
            "tool_calls": calls,
            "observation": {"results": results},
            "metrics": {"completion_token_ids": [1], "logprobs": [-0.1]},
        },
        {"source": "agent", "message": "Two.", "model_name": "m"},
    ]
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(atif(*steps, session_id="s-1")))
    (row,) = imported(path, "atif", reward=0.5)
    first, last = row.episode.trajectory.turns
    assert [message.content for message in first.prompt] == ["Be brief.", "Look.", "Copied."]
    assert [seen.content for seen in first.observations] == ["A", "B"]
    assert first.completion.tokens is None  # it does not say which policy sampled them
    assert not last.completion.forced
    assert (row.episode.id, row.episode.reward) == ("s-1", 0.5)


def test_imported_episodes_can_be_scored_and_paired(tmp_path: Path, registry: Any) -> None:
    steps = [{"source": "user", "message": "Look."}]
    for i, text in enumerate(["Two.", "Three."]):
        answer = {"source": "agent", "message": text}
        (tmp_path / f"trajectory-{i}.json").write_text(
            json.dumps(atif(*steps, answer, session_id=f"s-{i}"))
        )
    for i in (0, 1):
        path, out = tmp_path / f"trajectory-{i}.json", tmp_path / f"{i}.jsonl"
        import_rows([path], out, form="atif", reward=float(i))
    both = tmp_path / "both.jsonl"
    both.write_text((tmp_path / "0.jsonl").read_text() + (tmp_path / "1.jsonl").read_text())
    score(both, tmp_path / "scored.jsonl", registry)
    report = make_dpo(tmp_path / "scored.jsonl", tmp_path / "dpo.jsonl", pairing="same-prompt")
    assert report.written == 1


@pytest.mark.parametrize(
    "item",
    [
        {"schema_version": "ATIF-v2.0"},
        atif({"source": "user", "message": "a"}),
        atif({"source": "agent"}),
        atif({"source": "agent", "message": "", "tool_calls": [{"tool_call_id": "a"}]}),
        {"schema_version": "ATIF-v1.8", "agent": {}},
    ],
)
def test_items_that_are_not_atif_are_skipped_and_counted(tmp_path: Path, item: Any) -> None:
    steps = {"source": "user", "message": "a"}, {"source": "agent", "message": "b"}
    path = given(tmp_path / "a.jsonl", item, atif(*steps, extra=True))
    report = import_rows([path], tmp_path / "out.jsonl", form="atif")
    assert (report.read, report.written, sum(report.dropped.values())) == (2, 1, 1)


@pytest.mark.parametrize(
    ("form", "reason", "hint"),
    [
        ("atif", "expected the schema_version ATIF-v1.x, found none", "--format openai"),
        ("sharegpt", "no list 'conversations' in it", "--format openai"),
    ],
)
def test_a_file_of_another_format_is_refused(
    tmp_path: Path, form: Any, reason: str, hint: str
) -> None:
    path, out = given(tmp_path / "chats.jsonl", *[{"messages": CHAT}] * 2), tmp_path / "out.jsonl"
    with pytest.raises(InputError) as refused:
        import_rows([path], out, form=form)
    assert f"none of 2 items can be imported: {reason}" in str(refused.value)
    assert hint in str(refused.value)
    assert str(path) in str(refused.value)
    assert not out.exists()


def test_imported_episodes_without_a_reward_are_not_called_broken(
    tmp_path: Path, registry: Any
) -> None:
    import_rows([given(tmp_path / "a.jsonl", {"messages": CHAT})], tmp_path / "raw", form="openai")
    report = score(tmp_path / "raw", tmp_path / "scored.jsonl", registry)
    ((reason, n),) = report.dropped.items()
    assert (reason.partition(",")[0], n) == ("without a reward", 1)
    assert "mean reward" not in report.notes, "there is none of no episodes"


def test_harbors_own_models_accept_what_is_written(tmp_path: Path, run: Any) -> None:
    harbor = pytest.importorskip("harbor.models.trajectories")
    collect([run(whole(), tried(1.0, turn("Done.")))], tmp_path / "raw.jsonl", tools=[SHELL])
    export_rows(tmp_path / "raw.jsonl", tmp_path / "lines.jsonl", form="atif")
    for line in (tmp_path / "lines.jsonl").read_text().splitlines():
        harbor.Trajectory.model_validate_json(line)


def test_rows_that_a_format_cannot_hold_are_rejected(
    tmp_path: Path, raw: Path, registry: Any
) -> None:
    score(raw, tmp_path / "scored.jsonl", registry)
    make_rl(tmp_path / "scored.jsonl", tmp_path / "rl.jsonl")
    make_sft(raw, tmp_path / "sft.jsonl")
    for name, form in (("rl", "openai"), ("sft", "atif")):
        with pytest.raises(InputError, match="can't be written as"):
            export_rows(tmp_path / f"{name}.jsonl", tmp_path / "x.jsonl", form=form)  # type: ignore[arg-type]


def test_tables_are_exported_too(raw: Path) -> None:
    make_sft(raw, raw.with_name("sft.parquet"), min_reward=0)
    report = export_rows(raw.with_name("sft.parquet"), raw.with_name("x.jsonl"), form="openai")
    assert report.written == len(list(read_rows(raw.with_name("sft.parquet"), SftRow))) == 5
