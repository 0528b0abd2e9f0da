"""A proxy that is killed loses no session: what was open is open again."""

import contextlib
import json
import resource
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from ale.errors import InputError, StoreError
from ale.middleware import with_system_text
from ale.protocols import MiddlewareContext, Rewritten
from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.testing.openai_server import openai_server
from ale.types import Message, Task
from ale_proxy.journal import FOLDER, Entry, Journal
from ale_proxy.running import ProxyOptions, proxying, run, server_url
from ale_proxy.sessions import Sessions

from .conftest import CONFIG, Answers, Proxied

CALL = {"calls": [{"name": "add", "arguments": {}, "id": "c1"}]}
KEY = "sk-a-key-that-is-secret"


@contextlib.asynccontextmanager
async def killed(path: Path, upstream: str, *middleware: Any) -> AsyncIterator[Proxied]:
    """A proxy that ends without ending its sessions, as after ``kill -9``."""
    recording = Recording(path, CONFIG, Registry())
    sessions = Sessions(recording, idle_s=600, middleware=middleware)
    with contextlib.suppress(KeyError):
        options = ProxyOptions(upstream=upstream, port=0)
        async with proxying(options, server_url(upstream), sessions) as url:
            yield Proxied(url, sessions, path)
            sessions._open.clear()
    recording.close()


async def ask(proxy: Proxied, path: str, body: Any) -> Any:
    headers = {"X-Ale-Session": "s", "Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(trust_env=False) as asking:
        return (await asking.post(f"{proxy.url}/{path}", json=body, headers=headers)).json()


async def test_a_session_continues_after_a_kill_as_if_there_had_been_none(tmp_path: Path) -> None:
    script = {"conversations": [{"match": "1", "steps": [CALL, {"text": f"2, {KEY}"}]}]}
    messages: list[Any] = [{"role": "user", "content": "1+1?"}]
    path = tmp_path / "run"
    with openai_server(script) as server:
        async with killed(path, server.url) as proxy:
            answer = await ask(proxy, "chat/completions", {"messages": messages})
            shown = await ask(proxy, "sessions/s/feedback", {"text": "Faster."})
            await ask(proxy, "chat/completions", {"messages": [{"role": "user"}]})
        (file,) = (path / FOLDER).iterdir()
        assert [each.stat().st_mode & 0o777 for each in (file.parent, file)] == [0o700, 0o600]
        file.write_bytes(file.read_bytes() + b'{"turn": {"prom')
        async with killed(path, server.url) as proxy:
            (session,) = proxy.sessions
            assert (len(session.conversation.turns), session.left_out.total()) == (1, 1)
            again = await ask(proxy, "sessions/s/feedback", {"text": "Faster."})
            assert again["task"] == shown["task"] == session.task.id
            messages += [
                answer["choices"][0]["message"],
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
            ]
            await ask(proxy, "chat/completions", {"messages": messages})
            assert KEY.encode() not in file.read_bytes()
            ended = await ask(proxy, "sessions/s/feedback", {"score": 1, "text": "Right."})
            (episode,) = proxy.episodes()
    assert (ended["episode"], ended["turns"]) == (episode.id, 2)
    first, second = episode.trajectory.turns
    assert [observation.content for observation in first.observations] == ["2"]
    assert (second.fresh_context, second.prompt) == (False, ())
    assert [said["text"] for said in episode.metadata["feedback"]] == [
        "Faster.",
        "Faster.",
        "Right.",
    ]
    assert not list((path / FOLDER).iterdir())


async def test_a_response_from_before_a_kill_is_continued(
    tmp_path: Path, canned: Callable[[Answers], str]
) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"text": "2"}]}
    body = json.dumps({"id": "r1", "status": "completed", "output": [said]})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    upstream = canned({"/v1/responses": [f"{head}\r\n\r\n{body}"]})
    async with killed(tmp_path / "run", upstream) as proxy:
        await ask(proxy, "responses", {"input": "1+1?"})
        await ask(proxy, "responses", {"input": "Sure?", "previous_response_id": "r1"})
    async with killed(tmp_path / "run", upstream) as proxy:
        await ask(proxy, "responses", {"input": "So?", "previous_response_id": "r1"})
        (session,) = proxy.sessions
        assert not session.left_out
        turns = session.conversation.turns
    contents = [[message.content for message in turn.prompt] for turn in turns]
    assert contents == [["1+1?"], ["Sure?"], ["So?"]]


class Telling:
    """Adds what is known, of which there is more with every conversation."""

    def __init__(self) -> None:
        self.known: list[str] = []

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        self.known.append(f"fact {len(self.known)}")
        messages = with_system_text(head, ", ".join(self.known))
        return Rewritten(messages=messages, facts={"told": len(self.known)})


async def test_a_session_keeps_what_a_middleware_added_before_a_kill(tmp_path: Path) -> None:
    telling = ("telling", Telling())
    messages = [{"role": "user", "content": "1+1?"}]
    with openai_server({"*": {"text": "2"}}) as server:
        async with killed(tmp_path / "run", server.url, telling) as proxy:
            await ask(proxy, "chat/completions", {"messages": messages})
        messages += [{"role": "assistant", "content": "2"}, {"role": "user", "content": "Sure?"}]
        async with killed(tmp_path / "run", server.url, telling) as proxy:
            await ask(proxy, "chat/completions", {"messages": messages})
            await ask(proxy, "sessions/s/feedback", {"score": 1})
            (episode,) = proxy.episodes()
    assert [message.content for message in episode.trajectory.messages(0)] == ["fact 0", "1+1?"]
    assert [turn.fresh_context for turn in episode.trajectory.turns] == [True, False]
    assert episode.metadata["middleware"] == [{"type": "telling", "told": 1}]


async def test_the_time_before_a_kill_is_a_part_of_a_sessions_time(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with openai_server({"*": {"text": "2"}}) as server:
        async with killed(path, server.url) as proxy:
            await ask(proxy, "chat/completions", {"messages": [{"role": "user", "content": "1+1"}]})
            (session,) = proxy.sessions
        (file,) = (path / FOLDER).iterdir()
        earlier = (session.started - timedelta(hours=1)).isoformat()
        file.write_text(file.read_text().replace(session.started.isoformat(), earlier))
        async with killed(path, server.url) as proxy:
            await ask(proxy, "sessions/s/feedback", {"score": 1})
            (episode,) = proxy.episodes()
    assert 3600 <= episode.seconds["agent"] < 7200


HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = "Yes. " * 4000
EVENTS = "".join(
    f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n"
    for choice in (
        *({"delta": {"content": LONG[at : at + 500]}} for at in range(0, len(LONG), 500)),
        {"delta": {}, "finish_reason": "stop"},
    )
)
DONE = "data: [DONE]\n\n"


def chunk(data: str) -> str:
    return f"{len(data):x}\r\n{data}\r\n"


def recorded(path: Path) -> list[str]:
    """The answers on disk."""
    entries = [entry for session in Journal(path).read() for entry in session]
    return [entry.turn.completion.message.content for entry in entries if entry.turn is not None]


@pytest.mark.parametrize(
    "ends",
    [[DONE], [DONE[:9], DONE[9:]], [*DONE], [*DONE[:-1], DONE[-1], ": a comment\n\n"]],
    ids=["at once", "in two pieces", "byte by byte", "before a comment"],
)
async def test_a_turn_is_on_disk_before_the_agent_has_the_whole_answer(
    ends: list[str], tmp_path: Path, canned: Callable[[Answers], str]
) -> None:
    """Though the server does not end the answer, so that the request is still being answered."""
    pieces = [each for end in ends for each in (0.01, chunk(end))]
    upstream = canned({"/v1/chat/completions": [HEAD, chunk(EVENTS), *pieces, 60.0]})
    asked = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}
    got = ""
    async with (
        killed(tmp_path / "run", upstream) as proxy,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", f"{proxy.url}/chat/completions", json=asked) as answer,
    ):
        async for text in answer.aiter_text():
            got += text
            if DONE in got:
                break
        assert recorded(tmp_path / "run") == [LONG]
    assert got.startswith(EVENTS + DONE)


async def test_so_it_is_where_the_end_of_the_body_is_the_end_of_the_answer(
    tmp_path: Path, canned: Callable[[Answers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = canned({"/v1/chat/completions": [HEAD, chunk(EVENTS), "0\r\n\r\n"]})
    at_the_end: list[list[str]] = []
    write_eof = web.StreamResponse.write_eof

    async def noted(self: web.StreamResponse, data: bytes = b"") -> None:
        at_the_end.append(recorded(tmp_path / "run"))
        await write_eof(self, data)

    monkeypatch.setattr(web.StreamResponse, "write_eof", noted)
    asked = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}
    async with (
        killed(tmp_path / "run", upstream) as proxy,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        answer = await client.post(f"{proxy.url}/chat/completions", json=asked)
    assert answer.text == EVENTS
    assert at_the_end[0] == [LONG]


async def test_what_is_said_during_the_first_answer_outlives_a_kill(
    tmp_path: Path, canned: Callable[[Answers], str]
) -> None:
    upstream = canned({"/v1/chat/completions": [HEAD, chunk(EVENTS), 60.0]})
    asked = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}
    async with (
        killed(tmp_path / "run", upstream) as proxy,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream(
            "POST", f"{proxy.url}/chat/completions", json=asked, headers={"X-Ale-Session": "s"}
        ) as answer,
    ):
        await anext(answer.aiter_text())
        await ask(proxy, "sessions/s/feedback", {"text": "Too long."})
        entries = [entry for session in Journal(tmp_path / "run").read() for entry in session]
    assert [entry.task.goal for entry in entries if entry.task is not None] == ["Well?"]
    assert [entry.feedback.text for entry in entries if entry.feedback is not None] == ["Too long."]


async def test_what_a_full_disk_refused_is_written_with_the_next_answer(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with openai_server({"*": {"text": "Hm."}}) as server:
        async with killed(path, server.url) as proxy:
            first = {"messages": [{"role": "user", "content": "?"}]}
            (path / FOLDER).rename(path / "away")
            assert (await ask(proxy, "chat/completions", first))["choices"]
            assert recorded(path) == []
            (path / "away").rename(path / FOLDER)
            await ask(proxy, "chat/completions", {"messages": [{"role": "user", "content": "!"}]})
            assert recorded(path) == ["Hm.", "Hm."]
        async with killed(path, server.url) as proxy:
            (session,) = proxy.sessions
            assert len(session.conversation.turns) == 2


async def test_a_session_whose_episode_is_stored_already_is_not_stored_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    with openai_server({"*": {"text": "Hm."}}) as server:
        async with killed(path, server.url) as proxy:
            await ask(proxy, "chat/completions", {"messages": [{"role": "user", "content": "?"}]})
            (file,) = (path / FOLDER).iterdir()
            written = file.read_bytes()
            await ask(proxy, "sessions/s/feedback", {"score": 1})
            file.write_bytes(written)  # as if killed before it was removed
        async with killed(path, server.url) as proxy:
            assert not list(proxy.sessions)
            assert len(proxy.episodes()) == 1
    assert not list((path / FOLDER).iterdir())


def test_a_line_that_does_not_fit_on_the_disk_is_not_there_in_part(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = Entry(session="s", task=Task(id="t", goal="?"))
    journal.write("s", first)
    (file,) = (tmp_path / FOLDER).iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As a full disk: the system writes what fits, then refuses (Python ignores SIGXFSZ).
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, hard))
    try:
        with pytest.raises(StoreError, match="can't be written"):
            journal.write("s", Entry(left_out="a longer reason"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.write("s", Entry(left_out="another"))
    assert list(journal.read()) == [[first, Entry(left_out="another")]]


def test_an_entry_after_a_line_that_was_cut_off_is_a_line_of_its_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = Entry(session="s", task=Task(id="t", goal="?"))
    journal.write("s", first)
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_bytes(file.read_bytes() + b'{"turn": {"prom')
    assert list(journal.read()) == [[first]]
    journal.write("s", Entry(left_out="another"))
    assert list(journal.read()) == [[first, Entry(left_out="another")]]


async def test_what_was_assigned_is_open_again_in_its_order(tmp_path: Path) -> None:
    names = [f"s{n}" for n in range(8)]
    with contextlib.closing(Recording(tmp_path / "run", CONFIG, Registry())) as recording:
        for name in names:
            Sessions(recording, idle_s=1).assign(name, Task(id=name, goal="?"), "")
        assert [session.name for session in Sessions(recording, idle_s=1)] == names


@pytest.mark.parametrize("damaged", [b"[]\n", b'{"api": "\xff"}\n'])
async def test_a_damaged_file_is_named(tmp_path: Path, damaged: bytes) -> None:
    recording = Recording(tmp_path / "run", CONFIG, Registry())
    folder = tmp_path / "run" / FOLDER
    folder.mkdir()
    (folder / "odd.jsonl").write_bytes(damaged)
    with pytest.raises(InputError, match=r"odd\.jsonl"):
        Sessions(recording, idle_s=1)
    recording.close()


def test_a_run_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    Recording(path, {**CONFIG, "llm": {"type": "local"}}, Registry()).close()
    before = {file: file.read_bytes() for file in path.iterdir() if file.is_file()}
    options = ProxyOptions(upstream="http://127.0.0.1:9", port=0, run=path)
    with pytest.raises(InputError, match=r"not recorded by the same program: .* is local"):
        run(options, Registry(), say=pytest.fail)
    assert {file: file.read_bytes() for file in path.iterdir() if file.is_file()} == before


async def test_scores_of_turns_are_stored_beside_the_episode_also_after_a_kill(
    tmp_path: Path,
) -> None:
    script = {"conversations": [{"match": "1", "steps": [CALL, {"text": "2"}]}]}
    messages: list[Any] = [{"role": "user", "content": "1+1?"}]
    path = tmp_path / "run"
    with openai_server(script) as server:
        async with killed(path, server.url) as proxy:
            answer = await ask(proxy, "chat/completions", {"messages": messages})
            for score in (0.9, 0.2):
                said = {"turn": 0, "score": score, "text": f"{score}, {KEY}"}
                open_still = await ask(proxy, "sessions/s/feedback", said)
                assert (open_still["session"], open_still["turns"]) == ("s", 1)
            refused = await ask(proxy, "sessions/s/feedback", {"turn": 1, "score": 0.5})
            assert "no turn 1 is recorded; there are 1" in refused["error"]["message"]
            refused = await ask(proxy, "sessions/s/feedback", {"turn": 0, "text": "Hm."})
            assert "needs a score" in refused["error"]["message"]
        async with killed(path, server.url) as proxy:
            messages += [
                answer["choices"][0]["message"],
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
            ]
            await ask(proxy, "chat/completions", {"messages": messages})
            await ask(proxy, "sessions/s/feedback", {"turn": 1, "score": 1.0})
            await ask(proxy, "sessions/s/feedback", {"score": 0.5})
            (episode,) = proxy.episodes()
    (scored,) = RunReader(path).scores_of(episode)
    assert (episode.reward, "feedback" in episode.metadata) == (0.5, False)
    assert (scored.scorer, scored.episode_id) == ("feedback", episode.id)
    assert [chunk.spans[0].turn for chunk in scored.chunks] == [0, 1]
    assert [score.value for score in scored.scores] == [0.2, 1.0]
    assert KEY not in scored.scores[0].text
