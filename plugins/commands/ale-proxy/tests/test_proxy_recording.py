"""What passes becomes episodes: by the official clients, against real servers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import click
import httpx
import openai
import pytest
from click.testing import CliRunner

from ale.errors import StoreError
from ale.runs import Registry
from ale.testing.openai_server import openai_server
from ale.testing.waiting import until
from ale.types import Episode, Message, ToolCall
from ale_proxy.commands import bridge, proxy

from .conftest import Proxied

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
KEY = "sk-a-key-that-is-secret"
ASK: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
CALL = {"calls": [{"name": "add", "arguments": {"a": 1}, "id": "c1"}], "created": 1}
TWO = {"text": "Two.", "created": 1}
SCRIPT = {"conversations": [{"match": "1\\+1", "steps": [CALL, TWO, {"text": "Yes."}]}]}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
Start = Callable[..., Any]


@contextlib.asynccontextmanager
async def client(url: str, **headers: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=url, api_key=KEY, max_retries=0, timeout=120, default_headers=headers
    ) as made:
        yield made


async def post(proxy: Proxied, path: str, body: Any = None, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as asking:
        return await asking.post(f"{proxy.url}/sessions/{path}", json=body or {}, headers=headers)


async def raw(url: str, stream: bool, messages: list[Any]) -> bytes:
    async with client(url) as asking:
        create = asking.chat.completions.with_raw_response.create
        answer = await create(model="m", messages=messages, tools=[ADD], stream=stream)
        return await answer.http_response.aread()


async def said(url: str, stream: bool, messages: list[Any], **more: Any) -> dict[str, Any]:
    """The assistant's message, as the client reads it."""
    async with client(url, **more.pop("headers", {})) as asking:
        asked = asking.chat.completions.create(model="m", messages=messages, stream=stream, **more)
        if not stream:
            answer = await asked
            return answer.choices[0].message.model_dump(exclude_none=True)
        deltas = [chunk.choices[0].delta async for chunk in await asked if chunk.choices]
        text = "".join(delta.content or "" for delta in deltas)
        return {"role": "assistant", "content": text}


@BOTH
async def test_the_official_client_reads_equal_bytes(stream: bool, start: Start) -> None:
    with openai_server([CALL, CALL, TWO, TWO]) as server:
        proxy: Proxied = await start(server.url)
        for _ in range(2):
            assert await raw(proxy.url, stream, ASK) == await raw(server.url, stream, ASK)


async def two_turns(proxy: Proxied, stream: bool, **headers: str) -> list[Any]:
    """A call, its result, and an answer; the whole conversation."""
    messages = list(ASK)
    await said(proxy.url, stream, messages, tools=[ADD], headers=headers)
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "user", "content": "So?"},
    ]
    messages.append(await said(proxy.url, stream, messages, tools=[ADD], headers=headers))
    return messages


@BOTH
async def test_a_session_is_an_episode_with_each_message_once(stream: bool, start: Start) -> None:
    with openai_server(SCRIPT) as server:
        proxy: Proxied = await start(server.url)
        await two_turns(proxy, stream)
        ended = await post(
            proxy,
            "current/feedback",
            {"score": 1.0, "text": "Right."},
            Authorization=f"Bearer {KEY}",
        )
    assert ended.json()["turns"] == 2
    (episode,) = proxy.episodes()
    assert (episode.reward, episode.failure) == (1.0, None)
    first, second = episode.trajectory.turns
    assert [message.role for message in first.prompt] == ["system", "user"]
    assert first.completion.message.tool_calls == (
        ToolCall(id="c1", name="add", arguments='{"a": 1}'),
    )
    assert [o.content for o in first.observations] == ["2"]
    assert first.tools[0].name == "add"
    assert second.prompt == (Message(role="user", content="So?"),)
    assert (second.fresh_context, second.completion.message.content) == (False, "Two.")
    assert [m.role for m in episode.trajectory.messages(1)] == [
        *("system", "user", "assistant", "tool", "user")
    ]
    assert episode.metadata["feedback"] == [{"author": "", "text": "Right."}]


async def test_sessions_are_told_apart_by_header_and_by_key(start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url)
        for name in ("a", "b", "a"):
            await said(proxy.url, False, ASK, headers={"X-Ale-Session": name, "X-Ale-Task": "t"})
        await said(proxy.url, False, ASK)
        names = {session.name: len(session.conversation.turns) for session in proxy.sessions}
        sent = {key for each in server.requests() for key in each["headers"] if "x-ale" in key}
    (of_key,) = names.keys() - {"a", "b"}
    assert names == {"a": 2, "b": 1, of_key: 1}
    assert KEY not in of_key
    assert not sent
    await post(proxy, "a/feedback", {"score": 0.5})
    await post(proxy, "b/end")
    ended, unscored = proxy.episodes()
    assert (ended.id, ended.task_id, ended.reward) == ("0-t-0", "t", 0.5)
    assert (unscored.id, unscored.reward) == ("0-t-1", None)
    assert unscored.failure is not None
    assert unscored.failure.kind == "NoScore"


async def test_a_session_ends_when_nothing_comes_any_more(start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url, idle_s=0.2)
        await said(proxy.url, False, ASK)
        (episode,) = await until(proxy.episodes)
    assert episode.metadata["ended_by"] == "timeout"
    assert episode.trajectory.stop.reason == "time_limit"


async def test_the_same_first_message_is_the_same_task(start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url)
        for name in ("a", "b"):
            await said(proxy.url, False, ASK, headers={"X-Ale-Session": name})
            await post(proxy, f"{name}/feedback", {"score": 1})
    first, second = proxy.episodes()
    assert first.task_id == second.task_id
    assert (first.rollout, second.rollout) == (0, 1)


async def test_a_compacted_conversation_is_stored_whole(start: Start) -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        proxy: Proxied = await start(server.url)
        await said(proxy.url, False, ASK, headers={"X-Ale-Session": "s"})
        shorter = [{"role": "user", "content": "In short: 1+1?"}]
        await said(proxy.url, False, shorter, headers={"X-Ale-Session": "s"})
        (session,) = proxy.sessions
    assert [turn.fresh_context for turn in session.conversation.turns] == [True, True]
    assert session.conversation.turns[1].prompt[0].content == "In short: 1+1?"


TOKENS = {"prompt_ids": [1, 2], "ids": [3, 4], "logprobs": [-0.5, -0.25], "texts": ["T", "wo."]}


@BOTH
async def test_tokens_are_stored_exactly_where_the_server_gives_them(
    stream: bool, start: Start
) -> None:
    with openai_server({"*": {**TWO, "tokens": TOKENS}}) as server:
        proxy: Proxied = await start(server.url, ask_tokens=True)
        url = proxy.url.replace("/v1", "/s/one/v1")
        await said(url, stream, ASK, temperature=1, top_p=1)
        await said(url, stream, ASK, temperature=0.5, top_p=1)
        await said(url, stream, ASK, temperature=1, top_p=1, presence_penalty=1.5)
        (session,) = proxy.sessions
    sampled, scaled, biased = (turn.completion.tokens for turn in session.conversation.turns)
    assert sampled is not None
    assert sampled.prompt_ids == (1, 2)
    assert (sampled.output_ids, sampled.logprobs) == ((3, 4), (-0.5, -0.25))
    assert scaled is None, "raw log-probabilities are not those of a temperature of 0.5"
    assert biased is None, "nor those of a penalty"


async def test_tokens_of_processed_log_probabilities_fit_any_temperature(start: Start) -> None:
    with openai_server({"*": {**TWO, "tokens": TOKENS}}) as server:
        proxy: Proxied = await start(server.url, ask_tokens=True, logprobs_mode="processed")
        await said(proxy.url, False, ASK, temperature=0.5)
        (session,) = proxy.sessions
    assert session.conversation.turns[0].completion.tokens is not None


@BOTH
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"fault": 500}, "status 500"),
        ({"text": "Hi there.", "fault": "half"}, "broke off"),
        ({"text": "Hi there.", "fault": "invalid_json"}, "can't be recorded"),
        ({"fault": "drop"}, "did not answer"),
    ],
)
async def test_an_answer_that_fails_is_counted_and_no_turn(
    step: Any, reason: str, stream: bool, start: Start
) -> None:
    with openai_server([step, TWO]) as server:
        proxy: Proxied = await start(server.url)
        with contextlib.suppress(openai.APIError, httpx.HTTPError, json.JSONDecodeError):
            await said(proxy.url, stream, ASK)
        await said(proxy.url, stream, ASK)
        await post(proxy, "current/end", None, Authorization=f"Bearer {KEY}")
    (episode,) = proxy.episodes()
    assert [turn.completion.message.content for turn in episode.trajectory.turns] == ["Two."]
    ((found, times),) = episode.metadata["not_recorded"].items()
    assert reason in found
    assert times == 1


async def test_a_session_without_an_answer_is_a_broken_episode(start: Start) -> None:
    with openai_server([{"fault": 500}]) as server:
        proxy: Proxied = await start(server.url)
        with contextlib.suppress(openai.APIError):
            await said(proxy.url, False, ASK)
        await post(proxy, "current/feedback", {"score": 0}, Authorization=f"Bearer {KEY}")
    (episode,) = proxy.episodes()
    assert episode.reward is None
    assert episode.failure is not None
    assert "status 500 (1)" in episode.failure.message


async def test_a_slow_server_is_waited_for_and_its_session_stays_open(start: Start) -> None:
    with openai_server([{**TWO, "delay_s": 1.0}]) as server:
        proxy: Proxied = await start(server.url, idle_s=0.2)
        assert (await said(proxy.url, False, ASK))["content"] == "Two."
        (session,) = proxy.sessions
    assert len(session.conversation.turns) == 1


async def test_a_key_is_nowhere_in_what_is_stored(start: Start) -> None:
    with openai_server({"*": {"text": f"It is {KEY}."}}) as server:
        proxy: Proxied = await start(server.url)
        leaked = [{"role": "user", "content": f"My key is {KEY}"}]
        await said(proxy.url, False, leaked)
        await post(proxy, "current/feedback", {"score": 1}, Authorization=f"Bearer {KEY}")
        arrived = server.requests()[0]["headers"]["authorization"]
    assert arrived == f"Bearer {KEY}"
    for path in proxy.path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    (episode,) = proxy.episodes()
    assert episode.trajectory.turns[0].completion.message.content == "It is ***."


async def test_a_session_that_can_t_be_stored_stays_open(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with openai_server({"*": TWO}) as server:
        proxy: Proxied = await start(server.url)
        await said(proxy.url, False, ASK, headers={"X-Ale-Session": "s"})
        with monkeypatch.context() as full:

            def refuse(*_: Any) -> None:
                raise StoreError("the disk is full")

            full.setattr(proxy.sessions.recording, "add", refuse)
            judged = {"score": 1, "text": "Right."}
            answer = await post(proxy, "s/feedback", judged)
            assert (answer.status_code, proxy.episodes()) == (507, [])
            assert "the disk is full" in answer.json()["error"]["message"]
        assert (await post(proxy, "s/feedback", judged)).status_code == 200
    (episode,) = proxy.episodes()
    assert len(episode.trajectory.turns) == 1
    assert episode.scores[0].detail == "Right.", "what is sent again is not said twice"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("none/end", {}, 404),
        ("s/feedback", {}, 400),
        ("s/feedback", {"score": 2}, 400),
        ("s/feedback", {"scor": 1}, 400),
        ("s/feedback", [1], 400),
    ],
)
async def test_a_mistake_about_a_session_is_explained(
    path: str, body: Any, status: int, start: Start
) -> None:
    with openai_server({"*": TWO}) as server:
        proxy: Proxied = await start(server.url)
        await said(proxy.url, False, ASK, headers={"X-Ale-Session": "s"})
        answer = await post(proxy, path, body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_sessions_need_the_key_that_was_set(start: Start) -> None:
    with openai_server({"*": TWO}) as server:
        proxy: Proxied = await start(server.url, key_env="right")
        await said(proxy.url, False, ASK, headers={"X-Ale-Session": "s"})
        assert (await post(proxy, "s/end", Authorization="Bearer wrong")).status_code == 401
        for path in ("current/feedback", "current/end"):
            answer = await post(proxy, path, {"score": 1}, **{"X-Ale-Session": "s"})
            assert answer.status_code == 401, "the agent knows its session's name"
        assert (await post(proxy, "s/end", Authorization="Bearer right")).status_code == 200


async def test_two_hundred_streams_at_once_are_two_hundred_episodes(start: Start) -> None:
    def steps(number: int) -> dict[str, Any]:
        return {"match": f"^{number}$", "steps": [{"text": f"It is {number}, is it not?"}]}

    script = {"conversations": [steps(number) for number in range(200)]}
    with openai_server(script) as server:
        proxy: Proxied = await start(server.url)

        async def ask(asking: openai.AsyncOpenAI, number: int) -> str:
            stream = await asking.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": str(number)}],
                stream=True,
                extra_headers={"X-Ale-Session": f"s{number}"},
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async with client(proxy.url) as asking:
            answers = await asyncio.gather(*(ask(asking, number) for number in range(200)))
        proxy.sessions.end_all()
    assert answers == [f"It is {number}, is it not?" for number in range(200)]
    recorded = {e.metadata["session"]: _only(e) for e in proxy.episodes()}
    assert recorded == {f"s{n}": (str(n), f"It is {n}, is it not?") for n in range(200)}


def _only(episode: Episode) -> tuple[str, str]:
    (turn,) = episode.trajectory.turns
    return turn.prompt[0].content, turn.completion.message.content


@pytest.mark.parametrize("command", [(proxy, ["no URL"]), (bridge, ["--upstream", "no URL"])])
def test_what_can_not_be_a_header_is_refused(
    command: tuple[click.Command, list[str]],
) -> None:
    chosen, rest = command
    done = CliRunner().invoke(chosen, [*rest, "--session-header", "my session"], obj=Registry())
    assert done.exit_code == 2
    assert "'my session' can't be the name of a header" in done.output
