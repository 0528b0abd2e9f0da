"""The commands: what they are given, and what they print."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ale._store import Redactor, RunDirectory
from ale.plugin import Component, hookimpl
from ale.runs import Registry, add_note
from ale.testing.builders import episode, turn
from ale.testing.fakes import FakeChunker
from ale.types import Credit, Group, Message, Note, replace
from ale_data.commands import data, train

Ale = Callable[..., Result]


class Later:
    """Chunk k earns k times the reward."""

    def assign(self, group: Group) -> Sequence[Credit]:
        made = []
        for rollout in group.rollouts:
            earned = tuple(k * (rollout.episode.reward or 0.0) for k in range(len(rollout.chunks)))
            made.append(
                Credit(
                    episode_id=rollout.episode.id,
                    scheme="later",
                    rewards=earned,
                    returns=earned,
                    weights=earned,
                )
            )
        return made


class Parts:
    """What is installed."""

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [Component("ale-lite", None, lambda o, c: FakeChunker(), summary="By turn.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        return [Component("ipa-lite", None, lambda o, c: Later(), summary="Later is better.")]


@pytest.fixture
def ale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ale:
    """Run one of the commands in a folder with a run of two rollouts."""
    monkeypatch.chdir(tmp_path)
    manifest = {"run_id": "one", "n_tasks": 1, "config": {"chunker": {"type": "ale-lite"}}}
    store = RunDirectory.create(tmp_path / "runs" / "one", manifest, Redactor({}))
    for i, text in enumerate(["Bad.", "Good."]):
        first = replace(
            turn(text), prompt=(Message(role="user", content="Do it."),), fresh_context=True
        )
        store.add_episode(episode(float(i), first, turn("Done."), rollout=i))
    store.close()
    registry = Registry()
    registry.add(Parts(), "ale-parts", "1.0")
    commands = {"data": data, "train": train}

    def invoke(name: str, *arguments: str) -> Result:
        return CliRunner().invoke(commands[name], arguments, obj=registry, catch_exceptions=False)

    return invoke


@pytest.fixture
def scored(ale: Ale) -> Ale:
    """The same, after the first two steps."""
    collected = ale("data", "collect", "runs", "--out", "data/raw.jsonl")
    assert collected.output.splitlines()[0] == "data/raw.jsonl: 2 rows from 2 episodes"
    result = ale("data", "score", "--in", "data/raw.jsonl", "--out", "data/scored.jsonl")
    assert "  mean reward: 0.5" in result.output.splitlines()
    return ale


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_pairs_of_one_prompt_are_the_default(scored: Ale) -> None:
    result = scored("data", "dpo", "--in", "data/scored.jsonl", "--out", "dpo.jsonl")
    assert result.output.splitlines() == [
        "dpo.jsonl: 1 row from 3 prompts",
        "  episodes: 2",
        "  left out 2: only one rollout reached the prompt",
    ]
    (row,) = rows("dpo.jsonl")
    assert row["prompt"] == [{"role": "user", "content": "Do it."}]
    assert row["chosen"] == [{"role": "assistant", "content": "Good."}]
    assert row["rejected"] == [{"role": "assistant", "content": "Bad."}]


def test_pairs_of_one_trajectory_are_offered(scored: Ale) -> None:
    arguments = ("--in", "data/scored.jsonl", "--out", "dpo.jsonl", "--pairing", "same-trajectory")
    result = scored("data", "dpo", *arguments)
    assert "  left out 1: tie: all chunks earned the same" in result.output.splitlines()
    (row,) = rows("dpo.jsonl")
    assert row["chosen"][0]["content"] == "Done."
    assert row["rejected"][0]["content"] == "Good."


def test_only_successes_are_imitated_by_default_and_the_others_are_counted(scored: Ale) -> None:
    result = scored("data", "sft", "--in", "data/raw.jsonl", "--out", "sft.jsonl")
    assert [row["episode"] for row in rows("sft.jsonl")] == ["0-demo-1"]
    assert "  left out 1: reward below 1, so not imitated unless --min-reward" in result.output
    scored("data", "sft", "--in", "data/raw.jsonl", "--out", "all.jsonl", "--min-reward", "0")
    assert [row["episode"] for row in rows("all.jsonl")] == ["0-demo-0", "0-demo-1"]


def test_conversations_and_chunks(scored: Ale) -> None:
    scored("data", "sft", "--in", "data/raw.jsonl", "--out", "sft.jsonl", "--min-reward", "1")
    assert [row["episode"] for row in rows("sft.jsonl")] == ["0-demo-1"]
    scored("data", "rl", "--in", "data/scored.jsonl", "--out", "rl.jsonl")
    assert [row["return"] for row in rows("rl.jsonl")] == [0.0, 0.0, 0.0, 1.0]


def test_other_formats(scored: Ale) -> None:
    for form in ("openai", "sharegpt", "trl", "atif"):
        one, other = f"{form}.jsonl", f"{form}-raw.jsonl"
        result = scored("data", "export", "--in", "data/raw.jsonl", "--out", one, "--format", form)
        assert result.output == f"{one}: 2 rows from 2 rows\n"
        result = scored("data", "import", one, "--out", other, "--format", form, "--reward", "1")
        kept = "  not given the reward, since they have their own or are preferences: 1\n"
        more = kept if form == "atif" else ""
        assert result.output == f"{other}: 2 rows from 2 items\n{more}"
        assert rows(other)[0]["kind"] == "episode"


def test_what_a_person_has_marked_is_imitated_and_preferred(ale: Ale) -> None:
    for episode_id, verdict in (("0-demo-0", "good"), ("0-demo-1", "bad")):
        note = Note(id=episode_id, at=9e9, episode=episode_id, verdict=verdict)  # type: ignore[arg-type]
        add_note(Path("runs/one"), note)
    result = ale("data", "collect", "runs", "--verdicts", "--out", "marked.jsonl")
    assert {"  marked good: 1", "  marked bad: 1"} <= {*result.output.splitlines()}
    ale("data", "sft", "--in", "marked.jsonl", "--out", "sft.jsonl")
    assert [row["episode"] for row in rows("sft.jsonl")] == ["0-demo-0"]
    ale("data", "dpo", "--in", "marked.jsonl", "--out", "dpo.jsonl")
    (row,) = rows("dpo.jsonl")
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("Bad.", "Good.")


def test_without_a_verdict_it_is_said_how_they_are_made(ale: Ale) -> None:
    result = ale("data", "collect", "runs", "--verdicts", "--out", "marked.jsonl")
    assert rows("marked.jsonl") == []
    assert "ale view runs" in result.stderr
    assert "ale.runs.add_note" in result.stderr
    add_note(Path("runs/one"), Note(id="a", at=9e9, episode="0-demo-0", verdict="bad"))
    result = ale("data", "collect", "runs", "--verdicts", "--out", "marked.jsonl")
    assert result.stderr == ""


def test_tools_are_put_into_the_rows(ale: Ale) -> None:
    Path("tools.json").write_text('[{"function": {"name": "shell"}}]')
    ale("data", "collect", "runs/one", "--out", "raw.jsonl", "--tools", "tools.json")
    assert rows("raw.jsonl")[0]["tools"][0]["name"] == "shell"


def test_importing_the_commands_costs_no_more_than_click() -> None:
    import subprocess
    import sys

    code = "import sys, ale_data.commands; print([m for m in sys.modules if 'msgspec' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
