"""Commands that read runs work for an agent that acts by text, without tool calls."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ale._cli.main import cli
from ale.runs import Registry

AGENT = '''\
from ale.plugin import Component, hookimpl
from ale.types import CompletionRequest, Limits, Message, Observation, Stop, Turn


class TextAgent:
    """Runs each line of an answer that starts with `$ `."""

    limits = Limits()

    async def run(self, context):
        messages = prompt = (Message(role="user", content=context.task.goal),)
        while True:
            number = len(context.recorder.turns)
            completion = await context.llm.complete(
                CompletionRequest(
                    messages=messages,
                    conversation=context.conversation,
                    turn=number,
                    fresh_context=number == 0,
                )
            )
            seen = []
            for line in completion.message.content.splitlines():
                if line.startswith("$ "):
                    result = await context.sandbox.exec(line[2:])
                    text = result.stdout.decode() or "(no output)"
                    seen.append(Observation(call_id="", tool="sh", content=text, role="user"))
            context.recorder.append(
                Turn(
                    prompt=prompt,
                    fresh_context=number == 0,
                    completion=completion,
                    observations=tuple(seen),
                )
            )
            if not seen:
                return Stop(reason="finished")
            shown = tuple(one.as_message() for one in seen)
            messages, prompt = (*messages, completion.message, *shown), ()


@hookimpl
def ale_agents():
    return [Component("by-text", None, lambda o, c: TextAgent(), summary="Acts by text.")]
'''
GOOD = [{"text": "I look.\n$ ls -A\n$ echo found it"}, {"text": "$ touch done"}, {"text": "Done."}]
BAD = [{"text": "$ echo nothing to do"}, {"text": "Done."}]
CHUNKERS = [each.component.name for each in Registry.installed().registrations("chunker")]


@pytest.fixture
def run(workshop: Any) -> str:
    """Two episodes of one task: a success in three turns, and a failure in two."""
    workshop.write("site/text_agent.py", AGENT)
    info = "site/text_agent-1.0.dist-info"
    workshop.write(
        f"{info}/METADATA", "Metadata-Version: 2.1\nName: ale-text-agent\nVersion: 1.0\n"
    )
    workshop.write(f"{info}/entry_points.txt", "[ale]\ntext = text_agent\n")
    workshop.environ["PYTHONPATH"] = str(workshop.folder / "site")
    workshop.task("t")
    script = {"tasks": {"t": [GOOD, BAD]}, "tokens": True}
    workshop.scripted(script, agent={"type": "by-text"}, run={"rollouts": 2})
    workshop.succeeds("run", "run.yaml")
    episodes = workshop.episodes()
    assert [episodes[f"0-t-{rollout}"]["reward"] for rollout in (0, 1)] == [1.0, 0.0]
    assert not any(
        turn["completion"]["message"].get("tool_calls")
        for episode in episodes.values()
        for turn in episode["trajectory"]["turns"]
    )
    return str(workshop.run)


def test_show_names_the_commands_that_were_read_from_the_text(workshop: Any, run: str) -> None:
    shown = workshop.succeeds("show", run, "0-t-0")
    assert "$ touch done" in shown.out
    assert "> sh (read from the text)" in shown.out
    assert "| found it" in shown.out


def test_every_installed_chunker_cuts_it_for_credit_and_data_sets(
    workshop: Any, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workshop.folder)
    ale("data", "collect", run, "--out", "raw.jsonl")
    for chunker in CHUNKERS:
        chosen = ("--chunker", chunker, "--scheme", "ipa")
        assert "0-t-0: reward 1.000, " in ale("show", "credit", run, *chosen), chunker
        scored, rows = Path(f"{chunker}.jsonl"), Path(f"{chunker}.rl.jsonl")
        ale("data", "score", "--in", "raw.jsonl", "--out", str(scored), *chosen)
        assert f'"{chunker}"' in scored.read_text()
        ale("data", "rl", "--in", str(scored), "--out", str(rows))
        assert "touch done" in rows.read_text(), chunker


def ale(*arguments: str) -> str:
    """What a command prints that runs in this process: forty starts of `ale` would take long."""
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, (arguments, done.output)
    return done.output


def test_its_episodes_become_conversations_and_preferences(workshop: Any, run: str) -> None:
    for arguments in (
        ("data", "collect", run, "--out", "raw.jsonl"),
        ("data", "score", "--in", "raw.jsonl", "--out", "scored.jsonl"),
        ("data", "sft", "--in", "scored.jsonl", "--out", "sft.jsonl", "--min-reward", "1"),
        ("data", "dpo", "--in", "scored.jsonl", "--out", "dpo.jsonl"),
        ("data", "export", "--in", "sft.jsonl", "--out", "chats.jsonl", "--format", "openai"),
    ):
        done = workshop.ale(*arguments)
        assert done.code == 0, (arguments, done.text)
    pair = json.loads((workshop.folder / "dpo.jsonl").read_text())
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == (
        GOOD[0]["text"],
        BAD[0]["text"],
    )
    chat = json.loads((workshop.folder / "chats.jsonl").read_text())
    said = [each["content"] for each in chat["messages"] if each["role"] == "assistant"]
    assert said == [line["text"] for line in GOOD]


def test_report_and_results_are_written(workshop: Any, run: str) -> None:
    workshop.succeeds("report", run)
    page = (workshop.run / "report.html").read_text()
    assert "found it" in page
    results = workshop.succeeds("show", "results", run)
    assert "pass@1" in results.out
