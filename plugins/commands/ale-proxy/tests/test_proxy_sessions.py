"""Which session, and which task, a request belongs to."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import openai
import pytest

from ale.testing.openai_server import openai_server
from ale.types import Message, ToolSpec
from ale_proxy.tasks import task_of, without_clock

from .conftest import Proxied

Start = Callable[..., Any]
HM = {"*": {"text": "Hm."}}
NOW = datetime(2026, 11, 28, 1, 43, tzinfo=UTC)


async def ask(url: str, *texts: str, headers: Any = None, key: str = "sk-one-key") -> None:
    """A conversation of these texts, the user's and the model's in turns."""
    roles = ("user", "assistant")
    messages: list[Any] = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    async with openai.AsyncOpenAI(
        base_url=url, api_key=key, max_retries=0, default_headers=headers
    ) as client:
        await client.chat.completions.create(model="m", messages=messages)


async def control(proxy: Proxied, method: str, path: str, body: Any = None) -> httpx.Response:
    url = proxy.url.removesuffix("/v1") + path
    async with httpx.AsyncClient(trust_env=False) as client:
        headers = {"Authorization": "Bearer sk-one-key"}
        return await client.request(method, url, json=body, headers=headers)


async def test_a_session_and_its_task_are_named_in_the_base_url(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        base = proxy.url.removesuffix("/v1")
        await ask(f"{base}/s/first/v1", "One?")
        await ask(f"{base}/s/first/v1", "Aside?")
        await ask(f"{base}/s/second@sums/v1", "One?")
        await ask(f"{base}/s/third%40sums/v1", "Two?")
        scored = await control(proxy, "POST", "/s/first/v1/sessions/current/feedback", {"score": 1})
        named = await control(proxy, "POST", "/v1/sessions/second/feedback", {"score": 0})
        paths = {each["path"] for each in server.requests()}
        proxy.sessions.end_all()
    assert (scored.json()["session"], scored.json()["turns"]) == ("first", 2)
    assert named.json()["reward"] == 0
    assert paths == {"/v1/chat/completions"}
    found = {e.metadata["session"]: (e.task_id, e.rollout, e.reward) for e in proxy.episodes()}
    assert found["second"] == ("sums", 0, 0.0)
    assert found["third"] == ("sums", 1, None)
    assert found["first"][1:] == (0, 1.0)


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages"])
async def test_every_api_is_below_the_name_of_a_session(path: str, start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        body = {"model": "m", "messages": [], "prompt": "?", "input": "?", "max_tokens": 9}
        answered = await control(proxy, "POST", f"/s/a@b/v1/{path}?beta=true", body)
    assert answered.status_code in (200, 404), "what the server says of it"
    assert [(session.name, session.task_id) for session in proxy.sessions] == [("a", "b")]


async def test_two_names_of_one_request_are_refused(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        base = proxy.url.removesuffix("/v1")
        with pytest.raises(openai.BadRequestError, match="the path names 'a'"):
            await ask(f"{base}/s/a/v1", "One?", headers={"X-Ale-Session": "b"})
        with pytest.raises(openai.BadRequestError, match="letters, digits"):
            await ask(f"{base}/s/a%20b/v1", "One?")
    assert not list(proxy.sessions)


async def test_a_named_session_is_of_one_task(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        base = proxy.url.removesuffix("/v1")
        await ask(f"{base}/s/agent@sums/v1", "One?")
        await ask(f"{base}/s/agent/v1", "Aside?")
        with pytest.raises(openai.ConflictError, match="of the task 'sums', and not of 'roots'"):
            await ask(f"{base}/s/agent@roots/v1", "Two?")
        path = "/s/agent@roots/v1/sessions/current/feedback"
        refused = await control(proxy, "POST", path, {"score": 1})
        await control(proxy, "POST", "/v1/sessions/agent/feedback", {"score": 0})
        await ask(f"{base}/s/agent@roots/v1", "Two?")
        proxy.sessions.end_all()
    assert refused.status_code == 409, "the score is not for the task that is open"
    found = [(e.task_id, len(e.trajectory.turns), e.reward) for e in proxy.episodes()]
    assert found == [("sums", 2, 0.0), ("roots", 1, None)]


async def test_rollouts_that_got_the_same_answer_stay_two_episodes(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        texts = ["One?", "Hm."]
        for said in (texts[:1], [*texts, "Left."], [*texts, "Left.", "Hm.", "On."]):
            await ask(proxy.url, *said)
            if len(said) == 1:  # the other one begins before the first continues
                await ask(proxy.url, *said)
        await ask(proxy.url, *texts, "Right.")
        await ask(proxy.url, *texts, "Right.", "Hm.", "On.")
        proxy.sessions.end_all()
    turns = [len(episode.trajectory.turns) for episode in proxy.episodes()]
    assert turns == [3, 3]


async def test_without_a_name_what_continues_nothing_begins_an_episode(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        for task in ("One?", "Two?", "Two?"):
            await ask(proxy.url, task)
            await ask(proxy.url, task, "Hm.", "Really?")
            await ask(proxy.url, task, "Hm.", "Really?", "Hm.", "Well.")
        await ask(proxy.url, "One?", key="sk-another-key")
        proxy.sessions.end_all()
    turns = [len(episode.trajectory.turns) for episode in proxy.episodes()]
    assert turns == [3, 3, 3, 1]
    tasks = [episode.task_id for episode in proxy.episodes()]
    assert len(set(tasks)) == 2
    assert tasks[1] == tasks[2]


async def test_agents_at_the_same_time_with_one_key_are_told_apart(start: Start) -> None:
    script = {
        "conversations": [{"match": f"No {i}", "steps": [{"text": "Yes."}] * 3} for i in "abcd"]
    }
    with openai_server(script) as server:
        proxy: Proxied = await start(server.url)

        async def agent(name: str) -> None:
            texts = [f"No {name}"]
            for _ in range(3):
                await ask(proxy.url, *texts)
                texts += ["Yes.", "Go on."]

        await asyncio.gather(*map(agent, "abcd"))
        refused = await control(proxy, "POST", "/v1/sessions/current/feedback", {"score": 1})
        proxy.sessions.end_all()
    assert refused.status_code == 409, "a score for one of four, nobody knows which"
    assert "/s/NAME/v1" in refused.json()["error"]["message"]
    for episode in proxy.episodes():
        turns = episode.trajectory.turns
        assert (len(turns), [turn.fresh_context for turn in turns]) == (3, [True, False, False])


async def test_a_request_that_failed_is_sent_again_in_its_session(start: Start) -> None:
    with openai_server([{"fault": 500}, {"text": "Hm."}]) as server:
        proxy: Proxied = await start(server.url)
        with pytest.raises(openai.InternalServerError):
            await ask(proxy.url, "One?")
        await ask(proxy.url, "One?")
        ended = await control(proxy, "POST", "/v1/sessions/current/feedback", {"score": 1})
    assert ended.json()["turns"] == 1
    (episode,) = proxy.episodes()
    assert episode.reward == 1.0
    assert list(episode.metadata["not_recorded"].values()) == [1]


async def test_a_side_request_that_comes_first_does_not_name_the_task(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        base = proxy.url.removesuffix("/v1")
        for name, side_first in (("a", True), ("b", False)):
            url = f"{base}/s/{name}/v1"
            for text in ("A title for it.", "The task.")[:: 1 if side_first else -1]:
                await ask(url, text)
            await ask(url, "The task.", "Hm.", "Go on.")
            await control(proxy, "POST", f"/s/{name}/v1/sessions/current/feedback", {"score": 1})
    first, second = proxy.episodes()
    assert first.task_id == second.task_id
    assert (first.rollout, second.rollout) == (0, 1)


async def test_the_form_that_an_answer_must_have_is_a_part_of_the_task(start: Start) -> None:
    forms = {"a": {}, "b": {"response_format": {"type": "json_object"}}}
    forms |= {"c": forms["b"], "d": {"temperature": 0.5}}
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        for name, form in forms.items():
            body = {"model": "m", "messages": [{"role": "user", "content": "One?"}], **form}
            await control(proxy, "POST", f"/s/{name}/v1/chat/completions", body)
        proxy.sessions.end_all()
    tasks = {each.metadata["session"]: each.task_id for each in proxy.episodes()}
    assert tasks["a"] == tasks["d"] != tasks["b"] == tasks["c"]


def task(system: str = "s", user: str = "u", now: datetime = NOW, **more: Any) -> str:
    messages = [Message(role="system", content=system), Message(role="user", content=user)]
    return task_of(None, messages, began=now, **more).id


def test_tasks_are_told_apart_by_all_that_makes_them() -> None:
    tool = ToolSpec(name="t", description="", parameters={})
    image = [Message(role="user", content=f"What is it? [image_url {n}]") for n in "12"]
    found = [
        task(),
        task(system="another"),
        task(user="another"),
        task(tools=(tool,)),
        task(form={"response_format": {"type": "json_object"}}),
        task(user="on 2026-11-28"),
        task(user="on 2026-11-27"),
        *(task_of(None, [each]).id for each in image),
    ]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "clock",
    [
        "Today's date: %Y-%m-%d",
        "%Y-%m-%dT%H:%M:%S.123456+00:00",
        "It is %a %b %d %H:%M:%S UTC %Y.",
        "It is %A, %B %d, %Y, %I:%M %p",
        "%d.%m.%Y %H:%M",
        "%m/%d/%Y",
        "Current time: %H:%M:%S",
    ],
)
def test_a_clock_in_the_system_prompt_does_not_part_a_group(clock: str) -> None:
    later = NOW + timedelta(hours=7, minutes=13)
    texts = [f"Be brief.\n{at.strftime(clock)}\nBe kind." for at in (NOW, later)]
    assert texts[0] != texts[1] or "%H" not in clock
    assert task(texts[0], now=NOW) == task(texts[1], now=later)


def test_a_clock_may_be_a_day_off_as_those_of_other_zones_are() -> None:
    for days, text in ((-2, None), (-1, "<clock>"), (1, "<clock>"), (2, None)):
        day = f"{NOW + timedelta(days=days):%Y-%m-%d}"
        assert without_clock(f"It is {day}.", NOW) == f"It is {text or day}."


@pytest.mark.parametrize(
    "text",
    ["Born on 1914-07-28.", "Open from 09:00 to 17:00.", "Order 1700000000", "Version 1.2.2026"],
)
def test_other_dates_and_times_are_no_clock(text: str) -> None:
    assert without_clock(text, NOW) == text


async def test_a_clock_in_the_system_prompt_does_not_part_a_conversation(start: Start) -> None:
    with openai_server(HM) as server:
        proxy: Proxied = await start(server.url)
        messages: list[Any] = [{"role": "system", "content": ""}]
        for turn in range(4):
            messages[0] = {"role": "system", "content": f"It is {turn} o'clock."}
            messages.append({"role": "user", "content": f"{turn}?"})
            body = {"model": "m", "messages": messages}
            await control(proxy, "POST", "/v1/chat/completions", body)
            messages.append({"role": "assistant", "content": "Hm."})
        (session,) = proxy.sessions
        turns = session.conversation.turns
    assert [turn.fresh_context for turn in turns] == [True, False, False, False]
