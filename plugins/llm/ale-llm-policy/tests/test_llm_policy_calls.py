"""Tool calls in text, well written or not."""

import json

import pytest

from ale_training.chat import FORMATS
from ale_training.chat.calls import Reading
from ale_training.chat.calls import read as read_as

GOOD = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def read(text: str, form: str | None) -> Reading:
    return read_as(text, FORMATS[form or "hermes"], calls=form is not None)


def calls(reading: Reading) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in reading.calls]


@pytest.mark.parametrize(
    ("text", "content", "found"),
    [
        (GOOD, "", [("f", '{"a": 1}')]),
        (f"I act.\n{GOOD}\n{GOOD}\n", "I act.", [("f", '{"a": 1}')] * 2),
        ('a <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> b', "a  b", [("f", "{}")]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "",
         [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f", "arguments": {"x": "</tool_call>"}}</tool_call>', "",
         [("f", '{"x": "</tool_call>"}')]),
        ('<tool_call>{"name": "f", "arguments": {"a": "two\nlines"}}</tool_call>', "",
         [("f", '{"a": "two\\nlines"}')]),
        ('<tool_call>{"name": "f", "arguments": {"a": "é\\ud800"}}</tool_call>', "",
         [("f", '{"a": "\\u00e9\\ud800"}')]),
        # What is no JSON is a call all the same: the agent says what is wrong with it.
        ('<tool_call>{"name": "f", "arguments": {"a": }</tool_call>', "",
         [("f", '{"name": "f", "arguments": {"a": }')]),
        ('<tool_call>{"name": "f", "argum', "", [("f", '{"name": "f", "argum')]),
        ("<tool_call>", "", [("", "")]),
        ("<tool_call>[1, 2]</tool_call>", "", [("", "[1, 2]")]),
        ('<tool_call>{"name": 3, "arguments": [1]}</tool_call>', "", [("", "[1]")]),
        ("<tool_call>" + "[" * 100_000, "", [("", "[" * 100_000)]),
        ("no call at all ", "no call at all ", []),
    ],
)  # fmt: skip
def test_hermes_calls_are_found(text: str, content: str, found: list[tuple[str, str]]) -> None:
    reading = read(text, "hermes")
    assert calls(reading) == found
    assert reading.content == content


def test_without_tools_nothing_is_a_call() -> None:
    assert read(GOOD, None).content == GOOD


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>why</think>\n\nDone.", "why", "Done."),
        ("why</think>Done.", "why", "Done."),
        ("<think>cut off", "cut off", ""),
        ("Done. <think>late", None, "Done. <think>late"),
    ],
)
def test_leading_reasoning_is_split_off(text: str, reasoning: str | None, content: str) -> None:
    found = read(text, "hermes")
    assert (found.reasoning, found.content) == (reasoning, content)


def test_a_call_drafted_in_reasoning_is_none() -> None:
    assert read(f"<think>{GOOD}</think>Done.", "hermes").calls == ()


def test_places_count_what_is_kept() -> None:
    text = f"<think>w</think> ab {GOOD} cd"
    reading = read(text, "hermes")
    assert reading.content == "ab  cd"
    assert reading.place(0) == 0
    assert reading.place(text.index("b")) == 1
    assert reading.place(text.index("<tool_call>")) == 3
    assert reading.place(text.index("d", text.index("</tool_call>"))) == 5
    assert reading.place(len(text)) == 6


def test_calls_are_numbered_by_turn_and_place() -> None:
    assert [call.id for call in read(GOOD * 2, "hermes").tool_calls(3)] == ["call_3_0", "call_3_1"]


def test_other_formats_have_names_of_their_own() -> None:
    assert calls(read('{"name": "f", "parameters": {"a": 1}}', "llama3")) == [("f", '{"a": 1}')]
    assert calls(read("Hello {", "llama3")) == []
    two = '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]'
    assert calls(read(two, "mistral")) == [("f", "{}"), ("g", "{}")]
    assert calls(read('[TOOL_CALLS][{"name": "f"', "mistral")) == [("f", '[{"name": "f"')]


@pytest.mark.parametrize(
    ("form", "text", "found"),
    [
        ("xml", '<tool_call>\n<function=f>\n<parameter=a>\necho "</parameter>" > x\n</parameter>\n'
         "</function>\n</tool_call>", [("f", '{"a": "echo \\"</parameter>\\" > x"}')]),
        ("xml", '<tool_call>\n<function=f>\n<parameter=a>\necho "</tool_call>" > x\n</parameter>\n'
         "</function>\n</tool_call>", [("f", '{"a": "echo \\"</tool_call>\\" > x"}')]),
        ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value></tool_call></arg_value></tool_call>",
         [("f", '{"a": "</tool_call>"}')]),
        ("llama3", '{"name": "f", "arguments": {"a": "ls"}}', [("f", '{"a": "ls"}')]),
        ("llama3", '{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {}}',
         [("f", "{}"), ("g", "{}")]),
        ("llama3", '{"name": "Bob"}', []),
        ("llama3", '{"name": "Bob", "age": 3}', []),
        ("llama3", '{"name": "Bo', []),
        ("hermes", '<tool_call>{"name": "f", "parameters": {"a": "ls"}}</tool_call>',
         [("f", '{"a": "ls"}')]),
        ("mistral", '[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": "ls"}', [("f", '{"a": "ls"}')]),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"}[TOOL_CALLS]g[ARGS]{}',
         [("f", '{"a": "[TOOL_CALLS]"}'), ("g", "{}")]),
        ("harmony", '<|channel|>commentary to=f<|message|>{"a": "ls"}', [("f", '{"a": "ls"}')]),
        ("harmony", "<|channel|>final to=user<|message|>Done.", []),
    ],
)  # fmt: skip
def test_calls_in_the_ways_that_models_vary_are_read_whole(
    form: str, text: str, found: list[tuple[str, str]]
) -> None:
    reading = read(text, form)
    assert calls(reading) == found
    assert found or "Bo" in reading.content or reading.content == "Done."


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("xml", "<tool_call><function=f><parameter=a>ls</function></tool_call>"),
        ("xml", "<tool_call><function=f><parameter=a>ls<parameter=b>x</parameter></function>"
         "</tool_call>"),
        ("xml", "<tool_call><function=f><parameter=a>x</parameter><parameter=a>y</parameter>"
         "</function></tool_call>"),
        ("xml", "<tool_call><function=f>ls</function></tool_call>"),
        ("xml", "<tool_call><function=f><parameter=a>ls</parameter></function>"),
        ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>ls</tool_call>"),
        ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>x<tool_call>g</arg_value></tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "args": {"a": "ls"}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}, "parameters": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f"}{"name": "g"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}} -rf /</tool_call>'),
        ("llama3", '<|python_tag|>f.call("ls")'),
        ("llama3", "<|python_tag|>f.call(**{'a': 1})"),
        ("llama3", "<|python_tag|>f.call(a=1)(b=2)"),
        ("llama3", "<|python_tag|>f.call(a=1) + g.call(b=2)"),
        ("llama3", "<|python_tag|>f.call(a=1, a=2)"),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1} and more'),
        ("mistral", '[TOOL_CALLS]{"name": "f"}'),
        ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{'a': 1}<｜tool▁call▁end｜>"),
        ("gemma", "<|tool_call>call:f{a:\0 7\0}<tool_call|>"),
        ("gemma", '<|tool_call>call:f{a:"\0\x30\0"}<tool_call|>'),
        ("gemma", '<|tool_call>call:f{a:<|"|>ls<|"|>,b:"\0\x30\0"}<tool_call|>'),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_read_whole_is_never_a_shorter_one(form: str, text: str) -> None:
    (call,) = read(text, form).calls
    assert call.broken
    try:
        value = json.loads(call.arguments)
    except ValueError:
        return
    assert not isinstance(value, dict)


def test_what_follows_a_call_that_cannot_be_read_is_no_call() -> None:
    """It may be a part of it, such as a document that shows calls."""
    reading = read(
        '<tool_call>{"name": "f", "arguments": {"a": "' + f'" {GOOD}"}}}}</tool_call>', "hermes"
    )
    assert [call.broken for call in reading.calls] == [True]
