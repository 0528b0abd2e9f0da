"""What is recorded beside a plain answer, and what never is."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest

from ale.testing.openai_server import openai_server

from .conftest import Proxied
from .test_proxy_apis import BOTH, CLAUDE_EVENTS, only, streamed, whole

Start = Callable[..., Any]
Canned = Callable[[Any], str]
ASK: list[Any] = [{"role": "user", "content": "Which?"}]
USED = {"prompt_tokens": 5, "completion_tokens": 7}


def client(proxy: Proxied) -> openai.AsyncOpenAI:
    url = proxy.url.replace("/v1", "/s/s/v1")
    return openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0, timeout=60)


async def read(answer: Any) -> None:
    """All of it, if it is streamed."""
    if hasattr(answer, "__aiter__"):
        async for _ in answer:
            pass


def chat_answer(stream: bool, *messages: Any) -> list[str]:
    if not stream:
        choices = [
            {"index": i, "message": {"role": "assistant", **each}, "finish_reason": "stop"}
            for i, each in enumerate(messages)
        ]
        return whole({"id": "x", "object": "chat.completion", "choices": choices, "usage": USED})
    parts = [
        {"choices": [{"index": i, "delta": {name: piece}}]}
        for pair in zip(
            *[[(n, p) for n, t in m.items() for p in re.findall(r"\S+\s*", t)] for m in messages],
            strict=True,
        )
        for i, (name, piece) in enumerate(pair)
    ]
    ends = [
        {"choices": [{"index": i, "delta": {}, "finish_reason": "stop"}]}
        for i in range(len(messages))
    ]
    used = {"choices": [], "usage": USED}
    return streamed(*parts, *ends, used, end="data: [DONE]\n\n")


@BOTH
async def test_a_refusal_is_text(stream: bool, start: Start, canned: Canned) -> None:
    answer = chat_answer(stream, {"refusal": "I won't."})
    proxy: Proxied = await start(canned({"/v1/chat/completions": answer}))
    async with client(proxy) as asking:
        create = asking.chat.completions.create
        await read(await create(model="m", messages=ASK, stream=stream))
        refused = {"role": "assistant", "content": None, "refusal": "I won't."}
        await read(await create(model="m", messages=[*ASK, refused, *ASK], stream=stream))
    first, second = only(proxy)
    assert first.completion.message.content == "I won't."
    assert first.completion.finish_reason == "content_filter"
    # It is continued as any other answer, and not told again.
    assert (second.fresh_context, second.replaced) == (False, ())
    assert [message.content for message in second.prompt] == ["Which?"]


@BOTH
async def test_a_refusal_of_responses_is_text(stream: bool, start: Start, canned: Canned) -> None:
    part = {"type": "refusal", "refusal": "I won't."}
    item = {"type": "message", "role": "assistant", "id": "i", "content": [part]}
    made = {"id": "r1", "status": "completed", "output": [item]}
    answer = streamed({"type": "response.completed", "response": made}) if stream else whole(made)
    proxy: Proxied = await start(canned({"/v1/responses": answer}))
    async with client(proxy) as asking:
        await read(await asking.responses.create(model="m", input="Which?", stream=stream))
    (turn,) = only(proxy)
    assert turn.completion.message.content == "I won't."
    assert turn.completion.finish_reason == "content_filter"


@BOTH
async def test_each_of_several_answers_is_a_turn(
    stream: bool, start: Start, canned: Canned
) -> None:
    answer = chat_answer(stream, {"content": "One"}, {"content": "Two"}, {"content": "Three"})
    proxy: Proxied = await start(canned({"/v1/chat/completions": answer}))
    async with client(proxy) as asking:
        create = asking.chat.completions.create
        await read(await create(model="m", messages=ASK, n=3, stream=stream))
        chosen = [*ASK, {"role": "assistant", "content": "Two"}, *ASK]
        await read(await create(model="m", messages=chosen, n=3, stream=stream))
        proxy.sessions.end_all()
    (episode,) = proxy.episodes()
    turns = episode.trajectory.turns
    assert [turn.completion.message.content for turn in turns].count("Two") == 2
    assert len(turns) == 6
    assert sum(turn.completion.usage.completion_tokens for turn in turns) == 14
    for number in range(6):
        messages = [m.content for m in episode.trajectory.messages(number)]
        assert messages in (["Which?"], ["Which?", "Two", "Which?"])


@BOTH
async def test_each_prompt_of_a_list_is_a_turn(stream: bool, start: Start, canned: Canned) -> None:
    choices = [{"index": i, "text": f"answer {i}", "finish_reason": "stop"} for i in range(4)]
    answer = (
        streamed(
            *({"choices": [each]} for each in choices),
            {"choices": [], "usage": USED},
            end="data: [DONE]\n\n",
        )
        if stream
        else whole({"id": "x", "choices": choices, "usage": USED})
    )
    proxy: Proxied = await start(canned({"/v1/completions": answer}))
    async with client(proxy) as asking:
        await read(
            await asking.completions.create(model="m", prompt=["a", "b"], n=2, stream=stream)
        )
    turns = only(proxy)
    found = [(turn.prompt[0].content, turn.completion.message.content) for turn in turns]
    used = [turn.completion.usage.completion_tokens for turn in turns]
    assert sum(used) == 7, "the tokens of all answers, counted once"
    assert found == [("a", "answer 0"), ("a", "answer 1"), ("b", "answer 2"), ("b", "answer 3")]


async def test_how_each_turn_was_sampled_is_kept(start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url)
        async with client(proxy) as asking:
            for temperature in (0.5, 0.5, 1.0):
                await asking.chat.completions.create(
                    model="m",
                    messages=ASK,
                    temperature=temperature,
                    max_tokens=9,
                    extra_body={"top_k": 5, "api_key": "sk-in-the-body", "metadata": {"a": "b"}},
                )
        proxy.sessions.end_all()
    (episode,) = proxy.episodes()
    common = {"max_tokens": 9, "top_k": 5}
    assert episode.metadata["sampling"] == [
        {"fields": {"temperature": 0.5, **common}, "turns": [0, 1]},
        {"fields": {"temperature": 1.0, **common}, "turns": [2]},
    ]


def cut(events: list[str]) -> list[str | float]:
    return [*events[:-1], 0.1, "close"]


RESPONSES = [
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_text.delta", "delta": "Half an "},
    {"type": "response.output_text.delta", "delta": "answer"},
    {
        "type": "response.output_item.added",
        "item": {
            "type": "function_call",
            "id": "f",
            "call_id": "c9",
            "name": "add",
            "arguments": "",
        },
    },
    {"type": "response.function_call_arguments.delta", "item_id": "f", "delta": '{"a"'},
]
CUT: dict[str, tuple[list[Any], str, str]] = {
    "chat/completions": (
        [
            {"choices": [{"index": 0, "delta": {"content": "Half "}}]},
            {"choices": [{"index": 0, "delta": {"content": "an answer"}}]},
        ],
        "Half an answer",
        "",
    ),
    "completions": ([{"choices": [{"index": 0, "text": "Half an answer"}]}], "Half an answer", ""),
    "responses": (RESPONSES, "Half an answer", '{"a"'),
    "messages": (CLAUDE_EVENTS[:10], "Adding.", '{"a"'),
}


@pytest.mark.parametrize("path", CUT)
async def test_what_came_of_an_answer_that_broke_off_is_kept(
    path: str, start: Start, canned: Canned
) -> None:
    events, text, arguments = CUT[path]
    proxy: Proxied = await start(canned({f"/v1/{path}": cut(streamed(*events))}))
    body = {"model": "m", "messages": ASK, "prompt": "?", "input": "?", "stream": True}
    async with httpx.AsyncClient(trust_env=False, timeout=30) as asking:
        with contextlib.suppress(httpx.HTTPError):
            await asking.post(f"{proxy.url}/{path}", json=body)
    proxy.sessions.end_all()
    (episode,) = proxy.episodes()
    assert episode.reward is None
    assert not episode.trajectory.turns
    (found,) = episode.metadata["broken_off"]
    assert "broke off" in found["reason"]
    assert found["message"]["content"] == text
    calls = found["message"].get("tool_calls") or [{"arguments": ""}]
    assert calls[0]["arguments"] == arguments


async def test_what_a_client_that_leaves_has_seen_is_kept(start: Start, canned: Canned) -> None:
    pieces = streamed(*CUT["chat/completions"][0])
    proxy: Proxied = await start(canned({"/v1/chat/completions": [*pieces[:-1], 60.0]}))
    async with client(proxy) as asking:
        stream = await asking.chat.completions.create(model="m", messages=ASK, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content == "an answer":
                await stream.close()
                break
    for _ in range(200):
        (session,) = proxy.sessions
        if session.broken:
            break
        await asyncio.sleep(0.02)
    assert session.broken[0].message.content == "Half an answer"
    assert "left" in session.broken[0].reason


HIDDEN = "AIzaSy-a-very-secret-value"
PLACES: list[tuple[str, dict[str, str]]] = [
    ("", {"x-goog-api-key": HIDDEN}),
    ("", {"Ocp-Apim-Subscription-Key": HIDDEN}),
    ("", {"Helicone-Auth": f"Bearer {HIDDEN}"}),
    ("", {"x-portkey-virtual-key": HIDDEN}),
    ("", {"Authorization": f"Token {HIDDEN}"}),
    ("", {"Cookie": f"a=b; session={HIDDEN}"}),
    (f"?key={HIDDEN}", {}),
    (f"?alt=sse&access_token={HIDDEN}", {}),
    (f"?sig={HIDDEN}&api-version=1", {}),
]


@pytest.mark.parametrize(("query", "headers"), PLACES)
async def test_a_credential_anywhere_in_a_request_is_masked(
    query: str, headers: dict[str, str], start: Start, canned: Canned
) -> None:
    answer = chat_answer(False, {"content": f"It is {HIDDEN}."})
    proxy: Proxied = await start(canned({f"/v1/chat/completions{query}": answer}))
    body = {"model": "m", "messages": [{"role": "user", "content": f"It is {HIDDEN}"}]}
    async with httpx.AsyncClient(trust_env=False) as asking:
        url = f"{proxy.url}/chat/completions{query}"
        answered = await asking.post(url, json=body, headers=headers)
    (journal,) = (proxy.path / "open_sessions").iterdir()
    assert HIDDEN.encode() not in journal.read_bytes()
    proxy.sessions.end_all()
    assert answered.status_code == 200
    for path in proxy.path.rglob("*"):
        assert not path.is_file() or HIDDEN.encode() not in path.read_bytes(), path
    (episode,) = proxy.episodes()
    assert episode.trajectory.turns[0].completion.message.content == "It is ***."


async def test_keys_of_google_tell_sessions_apart(start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url)
        async with httpx.AsyncClient(trust_env=False) as asking:
            for key in ("AIza-first-key", "AIza-second-key"):
                body = {"model": "m", "messages": ASK}
                url = f"{proxy.url}/chat/completions"
                await asking.post(url, json=body, headers={"x-goog-api-key": key})
                await asking.post(f"{url}?key={key}3", json=body)
        names = {session.name.partition(".")[0] for session in proxy.sessions}
    assert len(names) == 4


@pytest.mark.parametrize("key", ["assistant", "ssistant", "tool_calls"])
async def test_a_key_that_is_a_word_of_the_records_harms_none(key: str, start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url)
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=key, max_retries=0) as asking:
            await asking.chat.completions.create(model="m", messages=ASK)
        proxy.sessions.end_all()
    (episode,) = proxy.episodes()
    assert episode.trajectory.turns[0].completion.message.role == "assistant"


async def test_two_images_are_two_messages(start: Start) -> None:
    with openai_server({"*": {"text": "A cat."}}) as server:
        proxy: Proxied = await start(server.url)
        async with client(proxy) as asking:
            for name in "ab":
                image: Any = {"type": "image_url", "image_url": {"url": f"data:image/png,{name}"}}
                asked: Any = [{"role": "user", "content": [{"type": "text", "text": "?"}, image]}]
                await asking.chat.completions.create(model="m", messages=asked)
    one, other = (turn.prompt[0].content for turn in only(proxy))
    assert one.startswith("?[image_url ")
    assert one != other


async def test_anthropic_s_client_takes_a_named_base_url(start: Start, canned: Canned) -> None:
    proxy: Proxied = await start(canned({"/v1/messages": streamed(*CLAUDE_EVENTS)}))
    url = proxy.url.removesuffix("/v1") + "/s/claude@sums"
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as asking:
        stream = await asking.messages.create(model="m", messages=ASK, max_tokens=9, stream=True)
        async for _ in stream:
            pass
    (session,) = proxy.sessions
    assert (session.name, session.task_id, len(session.conversation)) == ("claude", "sums", 1)
