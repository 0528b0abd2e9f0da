"""A served model, asked by the official SDK and by bare sockets."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest
from attrs import evolve

from ale.errors import AleError, ContextLengthError, LLMError
from ale.testing.fakes import FakeLLM
from ale.types import (
    Completion,
    CompletionRequest,
    LLMCapabilities,
    Message,
    TokenTrace,
    ToolCall,
    Usage,
)
from ale_serving.serve import running
from ale_serving.serve.answering import Served
from ale_serving.serve.running import Endpoint, listening

CALL = ToolCall(id="call_0_0", name="shell", arguments='{"command": "ls"}')
ANSWER = Completion(
    message=Message(role="assistant", content="Hé", reasoning="Hm.", tool_calls=(CALL,)),
    finish_reason="tool_calls",
    usage=Usage(prompt_tokens=7, completion_tokens=3),
    tokens=TokenTrace(
        prompt_ids=(1, 2), output_ids=(5, 6), logprobs=(-0.5, -0.25), policy_versions=(0, 0)
    ),
)
TOOL = {
    "type": "function",
    "function": {"name": "shell", "description": "Runs.", "parameters": {"type": "object"}},
}
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"
Start = Callable[..., Any]
LOCAL = "Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Serve a model at a free port; its base URL."""
    async with AsyncExitStack() as servers:

        async def started(llm: Any, **more: Any) -> str:
            endpoint = Endpoint(host="127.0.0.1", port=0)
            served = Served(llm=llm, name="mine", **more)
            return await servers.enter_async_context(listening(served, endpoint))

        yield started


def client(url: str, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)


async def raw(url: str, data: bytes) -> bytes:
    """What comes back for these bytes, up to the end of the connection."""
    port = int(url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    answered = await reader.read()
    writer.close()
    return answered


async def test_an_answer_has_text_calls_reasoning_reason_and_usage(start: Start) -> None:
    async with client(await start(FakeLLM([ANSWER]))) as asking:
        answer = await asking.chat.completions.create(**ASK)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Hé", "tool_calls")
    (call,) = choice.message.tool_calls or ()
    assert call.model_dump()["function"] == {"name": "shell", "arguments": CALL.arguments}
    assert choice.message.model_dump()["reasoning_content"] == "Hm."
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)
    assert answer.model == "mine"


async def test_the_request_reaches_the_model(start: Start) -> None:
    llm = FakeLLM([ANSWER])
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    conversation = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "out", "tool_call_id": "c1"},
    ]
    async with client(await start(llm)) as asking:
        await asking.chat.completions.create(
            model="m",
            messages=conversation,  # type: ignore[arg-type]
            tools=[TOOL],  # type: ignore[list-item]
            temperature=0.3,
            top_p=0.9,
            max_completion_tokens=11,
            stop="END",
            seed=5,
        )
    (given,) = llm.requests
    assert [message.role for message in given.messages] == ["system", "user", "assistant", "tool"]
    assert given.messages[1].content == "ab"
    assert given.messages[2].tool_calls == (ToolCall(id="c1", name="shell", arguments="{}"),)
    assert given.messages[3].tool_call_id == "c1"
    assert (given.tools[0].name, given.tools[0].parameters) == ("shell", {"type": "object"})
    sampling = given.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.3, 0.9, 11)
    assert sampling.stop == ("END",)
    assert (given.conversation.seed, given.turn, given.fresh_context) == (5, 1, True)


async def test_fields_that_change_nothing_are_accepted(start: Start) -> None:
    more = {"top_k": -1, "logit_bias": {}, "user": "me", "min_p": 0.0, "metadata": None}
    async with client(await start(FakeLLM([ANSWER]))) as asking:
        await asking.chat.completions.create(
            **ASK,
            response_format={"type": "text"},
            frequency_penalty=0,
            logprobs=False,
            top_logprobs=0,
            extra_body=more,
        )


async def test_a_request_without_a_seed_has_one_of_its_own(start: Start) -> None:
    llm = FakeLLM([ANSWER, ANSWER])
    async with client(await start(llm)) as asking:
        for _ in range(2):
            await asking.chat.completions.create(**ASK, tools=[TOOL], tool_choice="none")
    first, second = llm.requests
    assert first.conversation != second.conversation
    assert first.tools == ()


async def test_a_stream_is_the_same_answer_in_pieces(start: Start) -> None:
    async with client(await start(FakeLLM([ANSWER]))) as asking:
        stream = await asking.chat.completions.create(
            **ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Hé"
    (called,) = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
    assert (called.index, called.id) == (0, "call_0_0")
    assert called.function is not None
    assert called.function.arguments == CALL.arguments
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 10


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_are_returned_on_request(start: Start, stream: bool) -> None:
    async with client(await start(FakeLLM([ANSWER]))) as asking:
        asked = {"return_token_ids": True}
        answer = await asking.chat.completions.create(**ASK, stream=stream, extra_body=asked)
        found = [chunk async for chunk in answer][-1] if stream else answer
    body = found.model_dump()
    assert body["prompt_token_ids"] == [1, 2]
    assert body["choices"][0]["token_ids"] == [5, 6]
    content = body["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["logprob"]) for entry in content] == [
        ("token_id:5", -0.5),
        ("token_id:6", -0.25),
    ]


async def test_the_model_is_listed(start: Start) -> None:
    async with client(await start(FakeLLM([]))) as asking:
        assert [model.id async for model in asking.models.list()] == ["mine"]


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (ContextLengthError("too long"), 400, "context_length_exceeded"),
        (LLMError("busy", transient=True), 503, None),
        (LLMError("gone"), 502, None),
        (AleError("no tools"), 400, None),
        (RuntimeError("secret detail"), 500, None),
    ],
)
async def test_a_failure_is_an_error_with_a_fitting_status(
    start: Start, raised: Exception, status: int, code: str | None
) -> None:
    async with client(await start(FakeLLM([raised, ANSWER]))) as asking:
        with pytest.raises(openai.APIStatusError) as caught:
            await asking.chat.completions.create(**ASK)
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert "secret detail" not in str(caught.value)
        await asking.chat.completions.create(**ASK)  # one failure does not harm the next


async def test_only_the_right_key_is_answered(start: Start) -> None:
    url = await start(FakeLLM([ANSWER]), key="the-right-key")
    async with client(url, "a-wrong-key") as asking:
        with pytest.raises(openai.AuthenticationError):
            await asking.chat.completions.create(**ASK)
    async with client(url, "the-right-key") as asking:
        await asking.chat.completions.create(**ASK)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "messages"),
        (b'{"messages": []}', "no messages"),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', "$.n"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}', "$.temperature"),
        (b'{"messages": [{"role": "user", "content": "x"}], "top_p": 1.5}', "$.top_p"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "$.max_tokens"),
        (b'{"messages": [{"role": "cook", "content": "x"}]}', "cook"),
        (b'{"messages": [{"role": "user", "content": "x"}], "top_k": 20}', "supported by this"),
        (b'{"messages": [{"role": "user", "content": "x"}], "logprobs": true}', "return_token_ids"),
        (b'{"messages": [{"role": "user", "content": "x"}], "top_logprobs": 5}', "$.top_logprobs"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "image_url"),
    ],
)
async def test_unsupported_requests_are_rejected_with_a_reason(
    start: Start, body: bytes, message: str
) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\n{LOCAL}Content-Length: {len(body)}\r\n"
    answered = await raw(
        await start(FakeLLM([])), (head + "Connection: close\r\n\r\n").encode() + body
    )
    first, _, rest = answered.partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 400 ")
    assert message in json.loads(rest)["error"]["message"]


@pytest.mark.parametrize(
    ("first", "header", "status"),
    [
        ("GET /v1/nothing HTTP/1.1", "Connection: close", 404),
        (f"GET {CHAT} HTTP/1.1", "Connection: close", 405),
        ("GET /health HTTP/1.1", "Connection: close", 200),
        ("hello", "Connection: close", 400),
        (f"POST {CHAT} HTTP/1.1", "Content-Length: x", 400),
    ],
)
async def test_malformed_requests_get_an_explanation(
    start: Start, first: str, header: str, status: int
) -> None:
    asked = f"{first}\r\n{LOCAL}{header}\r\n\r\n".encode()
    assert (await raw(await start(FakeLLM([])), asked)).startswith(f"HTTP/1.1 {status} ".encode())


async def test_a_body_that_is_too_long_is_rejected_before_it_is_complete(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_serving.serve.answering.MOST_BODY", 1000)
    head = f"POST {CHAT} HTTP/1.1\r\n{LOCAL}Content-Length: 99999999999\r\n\r\n"
    url = await start(FakeLLM([]))
    async with asyncio.timeout(30):  # a connection that is kept is closed after 75 s
        answered = await raw(url, head.encode() + b"x" * 2000)
    assert answered.startswith(b"HTTP/1.1 413 ")


async def test_a_body_may_come_in_chunks(start: Start) -> None:
    body = json.dumps(ASK).encode()
    head = f"POST {CHAT} HTTP/1.1\r\n{LOCAL}Connection: close\r\n"
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    url = await start(FakeLLM([ANSWER]))
    answered = await raw(url, head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert answered.startswith(b"HTTP/1.1 200 ")


class Slow:
    """A model that never answers, and notes when it is no longer asked."""

    capabilities = LLMCapabilities()

    def __init__(self) -> None:
        self.asked, self.given_up = asyncio.Event(), asyncio.Event()

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
        raise AssertionError("unreachable")

    async def aclose(self) -> None: ...


async def test_a_disconnected_client_stops_its_sampling(start: Start) -> None:
    slow = Slow()
    async with client(await start(slow)) as asking:
        asked = asyncio.create_task(asking.chat.completions.create(**ASK))
        await asyncio.wait_for(slow.asked.wait(), 60)
        asked.cancel()
        await asyncio.wait({asked})
    await asyncio.wait_for(slow.given_up.wait(), 60)


async def test_many_requests_at_once_get_their_own_answers(start: Start) -> None:
    def echo(request: CompletionRequest) -> Completion:
        echo = Message(role="assistant", content=request.messages[-1].content)
        return Completion(message=echo)

    async with client(await start(FakeLLM([echo] * 32))) as asking:

        async def ask(number: int) -> str | None:
            text = [{"role": "user", "content": str(number)}]
            answer = await asking.chat.completions.create(model="m", messages=text)  # type: ignore[arg-type]
            return answer.choices[0].message.content

        assert await asyncio.gather(*map(ask, range(32))) == [str(i) for i in range(32)]


async def test_a_lone_half_of_a_surrogate_pair_is_sent_as_an_escape(start: Start) -> None:
    answer = Completion(message=Message(role="assistant", content="\ud83d"))
    async with client(await start(FakeLLM([answer]))) as asking:
        answer = await asking.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "\ud83d"


LEAVING = """
import socket, struct, sys
address, request = ("127.0.0.1", int(sys.argv[1])), sys.argv[2].encode()
for _ in range(20):
    with socket.create_connection(address) as connection:
        connection.sendall(request)
        connection.recv(64)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""
"""A client that reads the beginning of a stream and leaves."""


async def test_a_client_that_leaves_in_a_stream_causes_no_warning(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    calls = tuple(ToolCall(id=f"c{i}", name="shell", arguments="{}") for i in range(100))
    answer = evolve(ANSWER, message=evolve(ANSWER.message, tool_calls=calls))
    url = await start(FakeLLM([answer] * 20))
    body = json.dumps({**ASK, "stream": True})
    head = f"POST {CHAT} HTTP/1.1\r\n{LOCAL}Content-Length: {len(body)}\r\n\r\n"
    port = url.split(":")[2].split("/")[0]
    leaving = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVING, port, head + body)
    assert await leaving.wait() == 0
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: evil.example\r\nContent-Type: application/json\r\n", 421),
        (f"{LOCAL}Origin: http://e.example\r\n", 403),
        ("Host: localhost\r\nContent-Type: text/plain\r\n", 415),
        ("Host: localhost\r\n", 415),
    ],
)
async def test_what_a_page_could_send_is_refused(start: Start, head: str, status: int) -> None:
    llm = FakeLLM([])
    port = await start(llm)
    body = b'{"messages": [{"role": "user", "content": "x"}]}'
    for path in (CHAT, "/ale/pause", "/nothing"):
        asked = f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n"
        answered = await raw(port, f"{asked}Connection: close\r\n\r\n".encode() + body)
        assert int(answered.split()[1]) == status
        assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"]["message"]
    assert llm.requests == []


async def test_a_connection_that_asks_nothing_is_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "HEAD_S", 0.2)
    port = await start(FakeLLM([]))
    for begin in (b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: local"):
        assert await asyncio.wait_for(raw(port, begin), 10) == b""
