"""What middleware adds on the way: sent in each API's form, recorded, and nothing else changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ale.errors import AleError, InputError
from ale.middleware import with_system_text
from ale.plugin import Component, hookimpl
from ale.protocols import MiddlewareContext, Rewritten
from ale.runs import Registry
from ale.testing.openai_server import openai_server
from ale.types import EpisodeFinished, Message, RunFinished, RunStarted
from ale_proxy.apis import APIS
from ale_proxy.journal import Feedback
from ale_proxy.running import ProxyOptions, built_middleware, recorded

from .conftest import Proxied

Start = Callable[..., Any]
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
USER = {"role": "user", "content": [{"type": "text", "text": "Hi"}, IMAGE], "name": "me"}


class Adding:
    """Adds a text to the system message."""

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        if context.task.id == "fail":
            raise AleError("the store is gone")
        if context.task.id == "nothing":
            return Rewritten(messages=head)
        messages = with_system_text(head, "Be kind.")
        return Rewritten(messages=messages, facts={"of": context.conversation.episode_id})


async def ask(proxy: Proxied, body: Any, task: str = "t", path: str = "chat/completions") -> Any:
    async with httpx.AsyncClient(trust_env=False) as asking:
        headers = {"X-Ale-Session": "s", "X-Ale-Task": task}
        return await asking.post(f"{proxy.url}/{path}", json=body, headers=headers)


async def test_the_server_gets_it_and_the_episode_has_it(start: Start) -> None:
    with openai_server({"*": {"text": "Yes."}}) as server:
        proxy: Proxied = await start(server.url, middleware=[("adding", Adding())])
        first = [{"role": "system", "content": "Be brief."}, USER]
        await ask(proxy, {"model": "m", "messages": first, "odd": 1})
        said = {"role": "assistant", "content": "Yes."}
        more = [*first, said, {"role": "user", "content": "So?"}]
        await ask(proxy, {"model": "m", "messages": more})
        asked = [request["body"] for request in server.requests()]
        proxy.sessions.end_all()
    told = {"role": "system", "content": "Be brief.\n\nBe kind."}
    assert asked[0] == {"model": "m", "messages": [told, USER], "odd": 1}
    assert asked[1]["messages"] == [told, *more[1:]]
    (episode,) = proxy.episodes()
    assert episode.trajectory.messages(0)[0].content == told["content"]
    assert [turn.fresh_context for turn in episode.trajectory.turns] == [True, False]
    assert episode.metadata["middleware"] == [{"type": "adding", "of": "0-t-0"}]
    assert episode.id == "0-t-0"


async def test_a_body_to_which_nothing_is_added_stays_as_it_is(
    start: Start, canned: Callable[[Any], str]
) -> None:
    with openai_server({"*": {"text": "Yes."}}) as server:
        proxy: Proxied = await start(server.url, middleware=[("adding", Adding())])
        await ask(proxy, {"model": "m", "messages": [USER]}, task="nothing")
        assert server.requests()[0]["body"] == {"model": "m", "messages": [USER]}


async def test_a_middleware_that_fails_is_an_error_and_not_left_out(start: Start) -> None:
    with openai_server({"*": {"text": "Yes."}}) as server:
        proxy: Proxied = await start(server.url, middleware=[("adding", Adding())])
        answer = await ask(proxy, {"model": "m", "messages": [USER]}, task="fail")
        assert not server.requests()
    assert answer.status_code == 500
    assert "the store is gone" in answer.json()["error"]["message"]


CACHED = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/chat/completions", {"messages": [USER]},
         {"messages": [{"role": "system", "content": "Be kind."}, USER]}),
        ("/messages", {"messages": [USER]}, {"messages": [USER], "system": "Be kind."}),
        ("/messages", {"messages": [USER, USER], "system": [CACHED]},
         {"messages": [USER, USER],
          "system": [CACHED, {"type": "text", "text": "\n\nBe kind."}]}),
        ("/responses", {"input": "Hi"},
         {"input": [{"role": "user", "content": "Hi"}], "instructions": "Be kind."}),
        ("/responses", {"input": [USER], "instructions": "Be brief."},
         {"input": [USER], "instructions": "Be brief.\n\nBe kind."}),
        ("/completions", {"prompt": "Hi"}, {"prompt": "Be kind.\n\nHi"}),
    ],
)  # fmt: skip
def test_each_api_says_it_in_its_own_form(path: str, body: Any, expected: Any) -> None:
    api = APIS[path]
    before = tuple(api.asked(body).messages[: 1 + ("system" in body or "instructions" in body)])
    made = api.with_head(body, before, with_system_text(before, "Be kind."))
    assert made == expected


def test_the_section_of_a_config_is_built(tmp_path: Path) -> None:
    class Plugin:
        @hookimpl
        def ale_middleware(self) -> list[Component[None, Adding]]:
            return [Component("adding", None, lambda o, c: Adding(), summary="Adds.")]

    registry = Registry()
    registry.add(Plugin(), "ale-adding")
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"middleware": [{"type": "adding"}]}))
    ((name, made),) = built_middleware(config, registry)
    assert (name, type(made)) == ("adding", Adding)
    above = tmp_path / "above.yaml"
    above.write_text("extends: c.yaml\n")
    assert [name for name, _ in built_middleware(above, registry)] == ["adding"]
    config.write_text(json.dumps({"middleware": [{"type": "odd"}]}))
    with pytest.raises(InputError, match="no middleware 'odd'"):
        built_middleware(config, registry)


class Counting:
    """Keeps the events that it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        self.seen.append(f"started {Path(event.directory).name}")

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        self.seen.append(f"{event.episode.task_id} {event.episode.reward}")

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        self.seen.append(f"finished {event.n_graded}")


@pytest.mark.parametrize("kind", ["proxy", "bridge"])
def test_the_observers_of_a_config_see_what_is_recorded(kind: str, tmp_path: Path) -> None:
    counting = Counting()

    class Plugin:
        @hookimpl
        def ale_observers(self) -> list[Component[None, Counting]]:
            return [Component("counting", None, lambda o, c: counting, summary="Counts.")]

    registry = Registry()
    registry.add(Plugin(), "ale-counting")
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"observers": [{"type": "counting"}]}))
    options = ProxyOptions(upstream="", port=0, run=tmp_path / "recorded", config=config)
    with recorded(kind, options, "", registry) as sessions:
        session = sessions.opened("s", "t", ())
        sessions.say(session, Feedback(score=1.0))
        sessions.end(session, "feedback")
    assert counting.seen == ["started recorded", "t None", "finished 0"]
    config.write_text(json.dumps({"observers": [], "tasks": {"type": "tbp"}}))
    with (
        pytest.raises(InputError, match=f"ale (workers )?{kind} does not use this section"),
        recorded(kind, options, "", registry),
    ):
        pass
