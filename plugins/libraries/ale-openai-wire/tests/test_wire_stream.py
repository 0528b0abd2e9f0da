"""Events put together, in the ways in which servers are known to send them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ale.types import Completion, ToolCall
from ale_openai_wire import completion
from ale_openai_wire.stream import BrokenStreamError, EventReader, StreamedError, assemble

STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def delta(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish_reason}]}


def call(**part: Any) -> dict[str, Any]:
    return delta(tool_calls=[part])


async def made(*events: dict[str, Any], end: str = "data: [DONE]\n\n", size: int = 7) -> Completion:
    text = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events) + end
    data = text.encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    return completion(await assemble(chunks()), turn=0, model="m")


async def test_text_keeps_every_character_however_it_is_cut() -> None:
    text = 'a\u2028b\u0085c\x0bd 🐍 "e"\n\nf'
    for size in (1, 2, 3, 1000):
        answer = await made(*(delta(content=c) for c in text), STOP, size=size)
        assert answer.message.content == text


async def test_calls_are_joined_by_their_index() -> None:
    answer = await made(
        call(index=0, id="a", function={"name": "f", "arguments": ""}),
        call(index=1, id="b", function={"name": "g", "arguments": '{"y"'}),
        call(index=0, function={"arguments": '{"x": 1}'}),
        call(index=1, id="b", function={"arguments": ":  2"}),
        delta("tool_calls"),
    )
    assert answer.message.tool_calls == (
        ToolCall(id="a", name="f", arguments='{"x": 1}'),
        ToolCall(id="b", name="g", arguments='{"y":  2'),
    )


async def test_calls_without_an_index_begin_with_their_id() -> None:
    answer = await made(
        call(id="a", function={"name": "f", "arguments": "{"}),
        call(function={"arguments": "}"}),
        call(id="b", function={"name": "g", "arguments": "{}"}),
        delta("tool_calls"),
    )
    assert [(c.id, c.arguments) for c in answer.message.tool_calls] == [("a", "{}"), ("b", "{}")]


F, G = {"name": "f", "arguments": '{"x": 1}'}, {"name": "g", "arguments": "{}"}
ONE = ("f", '{"x": 1}')
TWO = (ONE, ("g", "{}"))


@pytest.mark.parametrize(
    ("events", "meant"),
    [
        ([call(index=0, id="a", function=F), call(index=0, id="b", function=G)], TWO),
        ([call(index=0, function=F), call(index=0, function=G)], TWO),
        ([call(index=0, function=F), call(index=0, function=F)], (ONE, ONE)),
        ([call(index=0, id="a", function=F), call(index=0, id="b", function=F)], (ONE, ONE)),
        ([call(function=F), call(function=G)], TWO),
        ([call(id="a", function=F), call(id="b", function=F)], (ONE, ONE)),
        ([call(index=1, id="b", function=G), call(index=0, id="a", function=F)], TWO),
        (  # id and name with each part, of two calls in turn
            [
                call(index=0, id="a", function={"name": "f", "arguments": '{"x"'}),
                call(index=0, id="a", function={"name": "f", "arguments": ": 1}"}),
                call(index=0, id="b", function={"name": "g", "arguments": "{"}),
                call(index=0, id="b", function={"name": "g", "arguments": "}"}),
            ],
            TWO,
        ),
        (  # the name with each part, and no ids
            [call(index=0, function={"name": "f", "arguments": c}) for c in '{"x": 1}'],
            (ONE,),
        ),
        (  # the id in the first part alone, null for the rest
            [
                call(index=0, id="a", function={"name": "f", "arguments": None}),
                call(index=0, id=None, function={"name": None, "arguments": '{"x": '}),
                call(index=0, id="", function={"name": "", "arguments": "1}"}),
                call(index=0, function=None),
            ],
            (ONE,),
        ),
        ([call(index=0, id="a", function=F), call(index=0, function={"name": "f"})], (ONE,)),
        ([call(index=0, function={"name": "f", "arguments": {"x": 1}})], (("f", '{"x": 1}'),)),
        ([call(index=0, function={"name": "f", "arguments": ""})], (("f", ""),)),
        ([call(index=0, function={"name": "f"})], (("f", ""),)),
        (
            [delta(function_call={"name": "f"}), delta(function_call={"arguments": '{"x": 1}'})],
            (ONE,),
        ),
        ([{"choices": [{"message": {"tool_calls": [{"id": "a", "function": F}]}}]}], (ONE,)),
        (
            [
                call(index=0, id="a", function=F),
                {"choices": [{"message": {"tool_calls": [{"id": "a", "function": F}]}}]},
            ],
            (ONE,),
        ),
        ([call(index=0, id="a", function=F), {"choices": []}, {"choices": None}], (ONE,)),
    ],
)
@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call"])
async def test_calls_are_the_same_in_all_ways_of_streaming_them(
    events: list[dict[str, Any]], meant: tuple[tuple[str, str], ...], reason: str
) -> None:
    answer = await made(*events, delta(reason))
    calls = answer.message.tool_calls
    assert [(each.name, each.arguments) for each in calls] == [*meant]
    assert len({each.id for each in calls}) == len(calls)


async def test_a_message_at_the_end_repeats_nothing() -> None:
    whole = {"choices": [{"message": {"content": "xy"}, "finish_reason": "stop"}]}
    assert (await made(delta(content="x"), delta(content="y"), whole)).message.content == "xy"
    assert (await made(whole)).message.content == "xy"


async def test_comments_names_and_other_line_ends_are_passed_over() -> None:
    reader = EventReader()
    data = b': ping\r\n\r\nevent: x\r\nid: 3\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:[DONE]\n\n'
    assert list(reader.feed(data)) == [b'{"a":\n1}', b"[DONE]"]


async def test_the_usage_comes_last_or_with_every_event() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    late = await made(delta(content="x"), STOP, {"choices": [], "usage": usage})
    always = await made(
        {**delta(content="x"), "usage": {"prompt_tokens": 3}}, {**STOP, "usage": usage}
    )
    assert late.usage == always.usage
    assert late.usage.completion_tokens == 2


async def test_an_end_without_done_is_an_end_if_a_reason_was_given() -> None:
    assert (await made(delta(content="x"), STOP, end="")).message.content == "x"


@pytest.mark.parametrize("end", ["", "data: [DONE]\n\n"])
async def test_an_end_without_a_reason_is_half_a_stream(end: str) -> None:
    with pytest.raises(BrokenStreamError, match="ended before the answer did"):
        await made(delta(content="x"), end=end)


async def test_an_event_that_is_no_json_breaks_it() -> None:
    with pytest.raises(BrokenStreamError, match="can't be read"):
        await made(delta(content="x"), end="data: {\n\n")


async def test_an_error_in_the_stream_is_an_error() -> None:
    with pytest.raises(StreamedError) as caught:
        await made(delta(content="x"), {"error": {"message": "out of memory", "code": 500}})
    assert caught.value.error == {"message": "out of memory", "code": 500}
