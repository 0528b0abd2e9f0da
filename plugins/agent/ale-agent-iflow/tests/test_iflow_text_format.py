"""Calls written in the text of an answer."""

import json
import time

import pytest

from ale.agents import BadCallError
from ale.testing.agent import answer
from ale_agent_iflow import text_format
from ale_agent_iflow.tools import TOOLS, check


def block(body: str, fence: str = "```", info: str = "tool") -> str:
    return f"{fence}{info}\n{body}\n{fence}"


LS = '{"name": "shell", "arguments": {"command": "ls"}}'


def the_call(content: str) -> tuple[str, object]:
    (found,) = text_format.read(content, "id").calls
    tool, arguments = check(found)
    return tool.name, arguments


@pytest.mark.parametrize(
    "content",
    [
        block(LS),
        f"I shall look.\n\n{block(LS)}\nThen I shall see.",
        block(LS, fence="~~~"),
        block(LS, fence="`````"),
        block(LS, info=" tool "),
        block(LS, info="tool_call"),
        block(f"\n\n  {LS}  \n"),
        block(LS).replace("\n", "\r\n"),
        f"```tool\n{LS}",
        f"  ```tool\n  {LS}\n  ```",
        f"<think>Perhaps:\n{block(LS.replace('ls', 'rm'))}\nNo.</think>\n{block(LS)}",
        block(LS + "\nand some words after it"),
    ],
)
def test_a_call_is_found(content):
    assert the_call(content) == ("shell", {"command": "ls"})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "No call.",
        "```bash\nls\n```",
        "```\n" + LS + "\n```",
        "```tools\n" + LS + "\n```",
        "Write ```tool to call.",
        LS,
        f"<think>{block(LS)}",
        f"<think>\n{block(LS)}\n</think> That is all.",
    ],
)
def test_text_without_a_call_has_none(content):
    assert text_format.read(content, "id").calls == ()


def test_a_file_that_holds_fences_is_written_whole():
    text = f"# Title\n```tool\n{LS}\n```\nEnd\n"
    call = json.dumps({"name": "write_file", "arguments": {"path": "a.md", "content": text}})
    assert the_call(block(call)) == ("write_file", {"path": "a.md", "content": text})


def test_line_breaks_in_a_string_are_taken_as_they_stand():
    raw = '{"name": "shell", "arguments": {"command": "cat <<X\n```\ntext\n```\nX"}}'
    assert the_call(block(raw)) == ("shell", {"command": "cat <<X\n```\ntext\n```\nX"})


def test_the_first_of_several_calls_counts_and_the_model_is_notified():
    reading = text_format.read(f"{block(LS)}\nThen\n{block(LS)}", "id")
    assert len(reading.calls) == 1
    assert reading.note == (
        "[only the first call of your answer was run; write one in each answer]"
    )


def test_a_single_call_is_not_complained_about():
    assert text_format.read(block(LS), "id").note == ""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"name": "shell", "arguments": {"command": "ls"', "the arguments are not valid JSON"),
        ("{'name': 'shell'}", "unknown tool ''"),
        ('{"name": "shell", arguments: {}}', "the arguments are not valid JSON"),
        ("", "unknown tool ''"),
        ("[]", "unknown tool ''"),
        ("17", "unknown tool ''"),
        ('"shell"', "unknown tool ''"),
        ("{}", "unknown tool ''"),
        ('{"name": 7, "arguments": {}}', "unknown tool ''"),
        ('{"name": null}', "unknown tool ''"),
        (r'{"name": "\ud800"}', r"unknown tool '\\\\ud800'"),
        ('{"name": "shell"}', "missing argument 'command'"),
        ('{"name": "shell", "command": "ls"}', "missing argument 'command'"),
        ('{"name": "shell", "arguments": "ls"}', "the arguments must be a JSON object"),
        ('{"name": "shell", "arguments": null}', "the arguments must be a JSON object"),
        ('{"name": "shell", "arguments": {"command": NaN}}', "the arguments are not valid JSON"),
        ('{"name": "shell", "arguments": ' + "[" * 100_000, "the arguments are nested too deeply"),
        ('{"name": "shell", "arguments": {"command": ' + "9" * 9999 + "}}", "the arguments are"),
    ],
)
def test_a_call_that_is_written_wrongly_is_refused_with_a_reason(body, error):
    (found,) = text_format.read(block(body), "id").calls
    found.name.encode()
    with pytest.raises(BadCallError, match=error):
        check(found)


@pytest.mark.parametrize(
    "content",
    [
        "```tool\n" * 20_000,
        '```tool\n{"a": "' * 20_000,
        " " * 200_000 + "```",
        "`" * 200_000,
        "```tool" + " " * 200_000 + "x",
        "<think>" * 50_000,
        "\n" * 200_000 + "```tool\n{",
        "```tool\n" + '{"a":' * 50_000,
        "```tool\n" + "\u2028\x0b\x00" * 50_000,
    ],
)
def test_hostile_text_is_parsed_in_linear_time(content):
    started = time.process_time()
    text_format.read(content, "id")
    assert time.process_time() - started < 2.0


# -- in an episode


def written(name: str, **arguments: object):
    return answer(block(json.dumps({"name": name, "arguments": arguments})))


async def test_a_model_without_tool_calls_gets_the_format_in_the_prompt(play):
    played = await play(written("finish", summary="done"), tools=False)
    (request,) = played.llm.requests
    assert request.tools == ()
    for tool in TOOLS:
        assert f"- {tool.signature}: " in request.messages[0].content
    assert text_format.FORMAT in request.messages[0].content
    assert played.stop.reason == "finished"


async def test_a_model_with_tool_calls_is_given_them(play):
    played = await play(answer("", ("finish", '{"summary": ""}')))
    assert [tool.name for tool in played.llm.requests[0].tools] == [tool.name for tool in TOOLS]
    assert "```" not in played.llm.requests[0].messages[0].content


@pytest.mark.parametrize(("tool_format", "tools"), [("text", True), ("native", False)])
async def test_the_option_wins_over_what_the_model_says_of_itself(play, tool_format, tools):
    played = await play(
        answer(block(LS), ("finish", '{"summary": "done"}')),
        written("finish", summary="done"),
        tool_format=tool_format,
        tools=tools,
    )
    assert played.observations[0].tool == ("shell" if tool_format == "text" else "finish")


async def test_observations_go_back_as_the_user(play):
    played = await play(
        written("shell", command="echo hello"), written("finish", summary="done"), tools=False
    )
    assert played.prompt_of(1) == "[result of shell]\nhello\n[exit code 0]"
    assert played.llm.requests[1].messages[-1].role == "user"
    assert played.observations[0].call_id == "text_0"


async def test_several_calls_in_one_answer_are_pointed_out(play):
    played = await play(
        answer(f"{block(LS)}\n{block(LS)}"), written("finish", summary="done"), tools=False
    )
    assert played.prompt_of(1).endswith(
        "[exit code 0]\n[only the first call of your answer was run; write one in each answer]"
    )


async def test_a_call_that_can_not_be_read_is_answered_with_the_format(play):
    played = await play(
        answer(block('{"name": "shell", "arguments": {"command": "ls}}')),
        written("finish", summary="done"),
        tools=False,
    )
    bad = played.observations[0]
    assert (bad.tool, bad.role) == ("shell", "user")
    assert bad.error is not None
    assert text_format.FORMAT in bad.content


async def test_an_answer_without_a_call_is_answered_with_the_format(play):
    played = await play(answer("```bash\nls\n```"), written("finish", summary="x"), tools=False)
    assert text_format.FORMAT in played.prompt_of(1)
