"""Commands that read runs work for an agent that acts by text, without tool calls."""

from typing import Any

import pytest

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
LINES = [{"text": "I look.\n$ ls -A\n$ echo found it"}, {"text": "$ touch done"}, {"text": "Done."}]


@pytest.fixture
def run(workshop: Any) -> str:
    """One episode with three turns and three commands."""
    workshop.write("site/text_agent.py", AGENT)
    info = "site/text_agent-1.0.dist-info"
    workshop.write(
        f"{info}/METADATA", "Metadata-Version: 2.1\nName: ale-text-agent\nVersion: 1.0\n"
    )
    workshop.write(f"{info}/entry_points.txt", "[ale]\ntext = text_agent\n")
    workshop.environ["PYTHONPATH"] = str(workshop.folder / "site")
    workshop.task("t")
    workshop.scripted({"default": LINES}, agent={"type": "by-text"})
    done = workshop.ale("run", "run.yaml")
    assert done.code == 0, done.text
    assert "completed: 1 episode on disk" in done.out
    assert all(
        not turn["completion"]["message"].get("tool_calls")
        for turn in workshop.episodes()["0-t-0"]["trajectory"]["turns"]
    )
    return str(workshop.run)


@pytest.mark.parametrize("chunker", ["interaction", "message", "tool-call"])
def test_show_and_credit_name_the_commands_that_were_read_from_the_text(
    workshop: Any, run: str, chunker: str
) -> None:
    shown = workshop.ale("show", run, "0-t-0")
    assert shown.code == 0, shown.text
    assert "$ touch done" in shown.out
    assert "> sh (read from the text)" in shown.out
    assert "| found it" in shown.out
    credited = workshop.ale("credit", run, "--scheme", "ipa", "--chunker", chunker)
    assert credited.code == 0, credited.text
    assert "touch done" in credited.out


def test_report_and_results_are_written(workshop: Any, run: str) -> None:
    report = workshop.ale("report", run)
    assert report.code == 0, report.text
    page = (workshop.run / "report.html").read_text()
    assert "found it" in page
    results = workshop.ale("results", run)
    assert results.code == 0, results.text
    assert "pass@1" in results.out
