"""The other APIs: Anthropic's messages, responses and completions, by the official clients."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest

from ale.types import Completion, Message, ToolCall, ToolSpec, Turn
from ale_proxy.apis import APIS

from .conftest import Proxied

CALL = ToolCall(id="c1", name="add", arguments='{"a": 1}')
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
Start = Callable[..., Any]
Canned = Callable[[Any], str]


def whole(body: Any) -> list[str]:
    text = json.dumps(body)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return [f"{head}\r\n\r\n{text}"]


def streamed(*events: Any, end: str = "") -> list[str]:
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    texts = [f"event: {e.get('type', 'x')}\ndata: {json.dumps(e)}\n\n" for e in events]
    texts += [end] if end else []
    return [head, *(f"{len(text):x}\r\n{text}\r\n" for text in texts), "0\r\n\r\n"]


def only(proxy: Proxied) -> tuple[Turn, ...]:
    (session,) = proxy.sessions
    assert not session.left_out
    return tuple(session.conversation.turns)


CLAUDE = {"id": "m1", "type": "message", "role": "assistant", "model": "claude"}
BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "text", "text": "Adding."},
    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
]
USED = {
    "input_tokens": 4,
    "cache_creation_input_tokens": 1,
    "cache_read_input_tokens": 2,
    "output_tokens": 3,
}
CLAUDE_ANSWER = {**CLAUDE, "content": BLOCKS, "stop_reason": "tool_use", "usage": USED}
CLAUDE_EVENTS = [
    {"type": "message_start", "message": {**CLAUDE, "content": [], "usage": USED}},
    {"type": "content_block_start", "index": 0, "content_block": {**BLOCKS[0], "thinking": ""}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "Hm."},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Add"}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ing."}},
    {"type": "content_block_start", "index": 2, "content_block": {**BLOCKS[2], "input": {}}},
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": '{"a"'},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": ": 1}"},
    },
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]


@BOTH
async def test_messages_of_anthropic_become_turns(
    stream: bool, canned: Canned, start: Start
) -> None:
    answer = streamed(*CLAUDE_EVENTS) if stream else whole(CLAUDE_ANSWER)
    proxy: Proxied = await start(canned({"/v1/messages": answer}))
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "2"}],
    }
    asked: list[Any] = [{"role": "user", "content": "1+1?"}]
    tool = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
    url = proxy.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k" * 20) as client:
        for _ in range(2):
            system = [{"type": "text", "text": "Be brief."}]
            fields: Any = {"model": "claude", "max_tokens": 9, "system": system, "tools": [tool]}
            if stream:
                async with client.messages.stream(**fields, messages=asked) as events:
                    said = await events.get_final_message()
            else:
                said = await client.messages.create(**fields, messages=asked)
            asked.append({"role": "assistant", "content": said.content})
            asked.append({"role": "user", "content": [result, {"type": "text", "text": "So?"}]})
    first, second = only(proxy)
    assert first.completion == Completion(
        message=Message(role="assistant", content="Adding.", reasoning="Hm.", tool_calls=(CALL,)),
        finish_reason="tool_calls",
        usage=first.completion.usage,
        model="claude",
    )
    assert (first.completion.usage.prompt_tokens, first.completion.usage.completion_tokens) == (
        7,
        3,
    )
    assert [message.content for message in first.prompt] == ["Be brief.", "1+1?"]
    assert first.tools[0].parameters == {"type": "object"}
    assert [o.content for o in first.observations] == ["2"]
    assert (second.prompt, second.fresh_context) == ((Message(role="user", content="So?"),), False)


RESPONSE = {
    "id": "r1",
    "object": "response",
    "status": "completed",
    "created_at": 1,
    "model": "m",
    "error": None,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
    "output": [
        {"type": "reasoning", "id": "i0", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "message",
            "id": "i1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Adding.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
    ],
}
RESPONSE_EVENTS = [
    {"type": "response.output_text.delta", "delta": "Adding.", "item_id": "i1", "output_index": 0},
    {"type": "response.completed", "response": RESPONSE},
]


@BOTH
@pytest.mark.parametrize("kept", [False, True], ids=["sent whole", "kept by the server"])
async def test_responses_become_turns(
    stream: bool, kept: bool, canned: Canned, start: Start
) -> None:
    answer = streamed(*RESPONSE_EVENTS) if stream else whole(RESPONSE)
    proxy: Proxied = await start(canned({"/v1/responses": answer}))
    result = {"type": "function_call_output", "call_id": "c1", "output": "2"}
    async with openai.AsyncOpenAI(base_url=proxy.url, api_key="k" * 20) as client:

        async def ask(given: Any, **more: Any) -> None:
            told = {"model": "m", "instructions": "Be brief.", **more}
            made = await client.responses.create(input=given, stream=stream, **told)
            if stream:
                assert [event.type async for event in made][-1] == "response.completed"

        await ask("1+1?")
        said = RESPONSE["output"]
        earlier = [] if kept else [{"role": "user", "content": "1+1?"}, *said]  # type: ignore[misc]
        more = {"previous_response_id": "r1"} if kept else {}
        await ask([*earlier, result, {"role": "user", "content": "So?"}], **more)
    first, second = only(proxy)
    assert first.completion.message == Message(
        role="assistant", content="Adding.", reasoning="Hm.", tool_calls=(CALL,)
    )
    assert [message.content for message in first.prompt] == ["Be brief.", "1+1?"]
    assert [o.content for o in first.observations] == ["2"]
    assert second.prompt == (Message(role="user", content="So?"),)


@pytest.mark.parametrize("kept", [{"conversation": "c1"}, {"prompt": {"id": "p1"}}], ids=str)
async def test_what_only_the_server_knows_is_not_recorded_in_part(
    kept: Any, canned: Canned, start: Start
) -> None:
    proxy: Proxied = await start(canned({"/v1/responses": whole(RESPONSE)}))
    async with httpx.AsyncClient(trust_env=False) as asking:
        answer = await asking.post(f"{proxy.url}/responses", json={"input": "So?", **kept})
    assert answer.json() == RESPONSE
    (session,) = proxy.sessions
    assert [*session.left_out] == [
        "the request can't be recorded: it names a conversation or a prompt that the server keeps"
    ]


def test_a_custom_tool_has_its_name() -> None:
    tool = {"type": "custom", "custom": {"name": "shell", "description": "Runs."}}
    asked = APIS["/chat/completions"].asked({"messages": [], "tools": [tool]})
    assert asked.tools == (ToolSpec(name="shell", description="Runs.", parameters={}),)


@BOTH
async def test_the_field_function_call_is_a_call_and_its_result_an_observation(
    stream: bool, canned: Canned, start: Start
) -> None:
    said = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    choice = {"index": 0, "finish_reason": "function_call"}
    events = streamed({"choices": [{**choice, "delta": said}]}, end="data: [DONE]\n\n")
    answer = events if stream else whole({"choices": [{**choice, "message": said}]})
    proxy: Proxied = await start(canned({"/v1/chat/completions": answer}))
    asked: list[Any] = [{"role": "user", "content": "Go."}]
    async with openai.AsyncOpenAI(base_url=proxy.url, api_key="k" * 20) as client:
        for _ in range(2):
            made: Any = await client.chat.completions.create(
                model="m", messages=asked, stream=stream
            )
            if stream:
                assert len([event async for event in made]) == 1
            asked += [said, {"role": "function", "name": "f", "content": "2"}]
    first, second = only(proxy)
    assert [call.name for call in first.completion.message.tool_calls] == ["f"]
    assert [each.content for each in first.observations] == ["2"]
    assert not second.fresh_context


@BOTH
async def test_completions_become_turns_that_stand_alone(
    stream: bool, canned: Canned, start: Start
) -> None:
    def piece(text: str, reason: str | None, *tokens: int) -> Any:
        choice = {
            "index": 0,
            "text": text,
            "finish_reason": reason,
            "token_ids": list(tokens),
            "prompt_token_ids": [1, 2],
            "logprobs": {"token_logprobs": [-0.5 * token for token in tokens]},
        }
        return {"id": "x", "object": "text_completion", "model": "m", "choices": [choice]}

    events = streamed(piece("Tw", None, 3), piece("o.", "stop", 4), end="data: [DONE]\n\n")
    answer = events if stream else whole(piece("Two.", "stop", 3, 4))
    proxy: Proxied = await start(canned({"/v1/completions": answer}))
    async with openai.AsyncOpenAI(base_url=proxy.url, api_key="k" * 20) as client:
        made = await client.completions.create(
            model="m", prompt="1+1=", stream=stream, temperature=1, top_p=1
        )
        if stream:
            assert len([event async for event in made]) == 2
    (turn,) = only(proxy)
    assert turn.completion.message.content == "Two."
    assert turn.completion.tokens is not None
    assert turn.completion.tokens.output_ids == (3, 4)
    assert turn.completion.tokens.logprobs == (-1.5, -2.0)


@pytest.mark.parametrize("body", [[], {"choices": [1]}, {"choices": "x"}, {"output": {}}, None])
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]
)
async def test_an_answer_of_any_form_passes(
    path: str, body: Any, canned: Canned, start: Start
) -> None:
    proxy: Proxied = await start(canned({path: whole(body)}))
    asked = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}
    async with httpx.AsyncClient(trust_env=False) as asking:
        answer = await asking.post(proxy.url.removesuffix("/v1") + path, json=asked)
    assert answer.json() == body
    (session,) = proxy.sessions
    assert sum(session.left_out.values()) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[]",
        b'{"messages": 1}',
        b'{"messages": [1]}',
        b'{"messages": [{"role": "x"}]}',
        b'{"messages": [], "n": 2}',
        b"\xff",
    ],
)
async def test_a_request_of_any_form_is_sent_on(body: bytes, canned: Canned, start: Start) -> None:
    proxy: Proxied = await start(canned({"/v1/chat/completions": whole({"object": "x"})}))
    async with httpx.AsyncClient(trust_env=False) as asking:
        json = {"Content-Type": "application/json"}
        answer = await asking.post(f"{proxy.url}/chat/completions", content=body, headers=json)
    assert answer.json() == {"object": "x"}
