"""Who may speak to the proxy and the bridge, how much, and how slowly."""

import asyncio
import contextlib
import json
import resource
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ale.errors import InputError
from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.testing.openai_server import openai_server
from ale_proxy import admission, sessions
from ale_proxy.bridge import running as bridge_running
from ale_proxy.bridge.api import Keys
from ale_proxy.bridge.running import BridgeOptions, bridging
from ale_proxy.running import ProxyOptions, run
from ale_proxy.sessions import Sessions

from .conftest import CONFIG, Proxied, ask_raw

Start = Callable[..., Any]
JSON = "Content-Type: application/json\r\n"
SCORE = b'{"score": 1}'
CHAT = {"messages": [{"role": "user", "content": "x"}]}
ASSIGN = {"prompt": "Which?", "id": "a"}
MANAGER, WORKER = "the-key-of-managers", "the-key-of-workers"


def raw(target: str, head: str, body: bytes = b"", method: str = "POST") -> bytes:
    length = f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{method} {target} HTTP/1.1\r\n{head}{length}\r\n".encode() + body


def answered(got: bytes) -> tuple[int, Any]:
    """Status and message; the body must be JSON with an error."""
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower(), got
    return int(head.split()[1]), json.loads(body)["error"]["message"]


@contextlib.asynccontextmanager
async def bridged(
    path: Path, keys: Keys | None = None, upstream: str = ""
) -> AsyncIterator[tuple[httpx.AsyncClient, Sessions]]:
    recording = Recording(path, CONFIG, Registry())
    options = BridgeOptions(proxy=ProxyOptions(upstream=upstream, port=0))
    held = Sessions(recording, idle_s=600)
    async with (
        bridging(options, held, keys) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client,
    ):
        yield client, held
    recording.close()


REFUSED = (
    (f"Host: evil.example\r\n{JSON}", 421),
    (f"Host: localhost.evil.example:8800\r\n{JSON}", 421),
    (f"Host: 192.168.1.4\r\n{JSON}", 421),
    (f"Host: localhost\r\n{JSON}Origin: http://evil.example\r\n", 403),
    (f"Host: localhost\r\n{JSON}Origin: null\r\n", 403),
    (f"Host: localhost:8800\r\n{JSON}Origin: http://localhost:3000\r\n", 403),
    (f"Host: localhost\r\n{JSON}Sec-Fetch-Site: cross-site\r\n", 403),
    (f"Host: localhost\r\n{JSON}Sec-Fetch-Site: same-site\r\n", 403),
    ("Host: localhost\r\nContent-Type: text/plain\r\n", 415),
    ("Host: localhost\r\nContent-Type: text/plain; x=application/json\r\n", 415),
    ("Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n", 415),
    ("Host: localhost\r\n", 415),
)


async def test_what_a_page_could_send_is_refused(start: Start) -> None:
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url)
        session = proxy.sessions.opened("s", None, ())
        for path in ("/v1/sessions/s/feedback", "/v1/chat/completions", "/v1/files", "/nothing"):
            for head, status in REFUSED:
                code, message = answered(await ask_raw(proxy.port, raw(path, head, SCORE)))
                assert (code, bool(message)) == (status, True), (path, head)
        assert server.requests() == []
        assert list(proxy.sessions) == [session]
        assert session.feedback == []
    assert proxy.episodes() == []


async def test_no_page_is_answered_or_forwarded_by_any_method(start: Start) -> None:
    """A server behind the proxy may answer a page's preflight; the proxy does not ask it."""
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url)
        head = "Host: localhost\r\nOrigin: http://evil.example\r\n"
        for method in ("OPTIONS", "GET", "DELETE", "PUT"):
            got = await ask_raw(proxy.port, raw("/v1/models", head, method=method))
            assert answered(got)[0] == 403
            assert b"access-control" not in got.lower()
        assert server.requests() == []


ANSWERED = (
    f"Host: localhost:8800\r\n{JSON}",
    f"Host: 127.0.0.1\r\n{JSON}",
    f"Host: [::1]:8800\r\n{JSON}",
    f"Host: LOCALHOST.\r\n{JSON}",
    f"Host: localhost:8800\r\nOrigin: http://localhost:8800\r\n{JSON}",
    "Host: localhost\r\nContent-Type: Application/JSON; charset=utf-8\r\n"
    "Sec-Fetch-Site: same-origin\r\n",
    f"Host: proxy.example\r\n{JSON}",
)


async def test_programs_and_pages_of_the_server_itself_are_answered(start: Start) -> None:
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url, allow_host=("Proxy.Example",))
        for head in ANSWERED:
            asked = raw("/v1/chat/completions", head, json.dumps(CHAT).encode())
            assert (await ask_raw(proxy.port, asked)).startswith(b"HTTP/1.1 200 "), head


async def test_beyond_loopback_addresses_and_names_of_the_own_network_are_answered(
    start: Start,
) -> None:
    proxy: Proxied = await start("http://h/v1", host="0.0.0.0")
    for host, status in (("proxy", 200), ("192.168.1.4:8800", 200), ("evil.example", 421)):
        got = await ask_raw(proxy.port, raw("/v1/sessions", f"Host: {host}\r\n", method="GET"))
        assert got.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "name.example"])
def test_beyond_loopback_a_key_is_needed(host: str, tmp_path: Path) -> None:
    options = ProxyOptions(upstream="http://h/v1", host=host, run=tmp_path / "run")
    for begin in (
        lambda: run(options, Registry(), print),
        lambda: bridge_running.run(BridgeOptions(proxy=options), Registry(), print),
    ):
        with pytest.raises(
            InputError, match=r"(?s)others than this machine could .*--key-env VARIABLE"
        ):
            begin()
    assert not (tmp_path / "run").exists()


TARGETS = {
    "http://localhost:1/v1/chat/completions": 200,
    "http://other.example/v1/chat/completions": 421,
    "ftp://localhost/v1/chat/completions": 400,
    ".evil.example/v1/chat/completions": 400,
    "@evil.example/v1/chat/completions": 400,
    "*": 400,
}


async def test_a_target_never_changes_the_server(start: Start) -> None:
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url)
        body = json.dumps(CHAT).encode()
        for target, status in TARGETS.items():
            got = await ask_raw(proxy.port, raw(target, f"Host: localhost\r\n{JSON}", body))
            assert int(got.split()[1]) == status, got
        (arrived,) = server.requests()
    assert arrived["path"] == "/v1/chat/completions"


async def test_a_bomb_is_not_inflated(start: Start) -> None:
    """389 kB that would be 400 MB are refused at a cost of less than 200 MB."""
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url)
        packing = zlib.compressobj(1, wbits=31)
        block = b" " * (1 << 20)
        bomb = b"".join([packing.compress(block) for _ in range(400)]) + packing.flush()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        head = f"Host: localhost\r\n{JSON}Content-Encoding: gzip\r\n"
        code, message = answered(await ask_raw(proxy.port, raw("/v1/chat/completions", head, bomb)))
        assert (code, "67108864 bytes" in message) == (413, True)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
        assert server.requests() == []


@pytest.mark.parametrize("declared", [True, False])
async def test_bodies_are_as_large_as_their_route_needs(
    declared: bool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy: Proxied = await start("http://127.0.0.1:9/v1")
    proxy.sessions.opened("s", None, ())
    for target, most in (
        ("/v1/sessions/s/feedback", admission.MOST_FORM),
        ("/v1/chat/completions", admission.MOST_BODY),
    ):
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\n{JSON}Connection: close\r\n"
        if declared:
            asked = f"{head}Content-Length: {most + 1}\r\n\r\n".encode()
        else:
            chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n{most + 1:x}\r\n"
            asked = chunked.encode() + b" " * (most + 1)
        code, message = answered(await ask_raw(proxy.port, asked))
        assert (code, message) == (413, f"the body of the request has more than {most} bytes")


async def test_who_says_nothing_or_too_slowly_is_not_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission.Entrance.__init__, "__kwdefaults__", {"head_s": 0.2})
    monkeypatch.setattr(admission, "BODY_S", 0.2)
    proxy: Proxied = await start("http://127.0.0.1:9/v1")
    for begin in (b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: local"):
        assert await asyncio.wait_for(ask_raw(proxy.port, begin), 10) == b""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{JSON}Connection: close\r\n"
    slow = await asyncio.wait_for(
        ask_raw(proxy.port, f"{head}Content-Length: 9\r\n\r\n{{".encode()), 20
    )
    assert answered(slow)[0] == 408


async def test_a_slow_body_that_is_only_sent_on_is_cut_too(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "BODY_S", 0.3)
    read = asyncio.Event()

    async def reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        read.set()
        writer.close()

    server = await asyncio.start_server(reads, "127.0.0.1", 0)
    try:
        proxy: Proxied = await start(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\n{JSON}Connection: close\r\n"
        for length in ("Content-Length: 9\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{"):
            slow = ask_raw(proxy.port, (head + length).encode())
            status, message = answered(await asyncio.wait_for(slow, 20))
            assert (status, message) == (408, "the body of the request did not come within 0.3 s")
            await asyncio.wait_for(read.wait(), 20)  # the server's connection has ended too
            read.clear()
    finally:
        server.close()


async def test_a_connection_that_waits_for_an_answer_is_kept(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission.Entrance.__init__, "__kwdefaults__", {"head_s": 0.2})
    with openai_server({"*": {"text": "Hi.", "delay_s": 0.6}}) as server:
        proxy: Proxied = await start(server.url)
        async with httpx.AsyncClient(trust_env=False) as client:
            for _ in range(2):
                answer = await client.post(f"{proxy.url}/chat/completions", json=CHAT, timeout=30)
                assert answer.status_code == 200


async def test_the_number_of_open_sessions_has_a_limit(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_OPEN", 2)
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url)
        async with httpx.AsyncClient(trust_env=False) as client:
            found = []
            for name in ("a", "b", "c", "a"):
                head = {"X-Ale-Session": name}
                url = f"{proxy.url}/chat/completions"
                found.append((await client.post(url, json=CHAT, headers=head)).status_code)
        assert found == [200, 200, 503, 200]
        assert len(server.requests()) == 3
    async with bridged(tmp_path / "bridge") as (asking, _):
        found = []
        for name in "abc":
            form = {**ASSIGN, "id": name}
            found.append((await asking.post("/tasks/assign", json=form)).status_code)
        assert found == [201, 201, 503]


KEYED = (
    ({}, 401, None),
    ({"Authorization": "Bearer other"}, 401, None),
    ({"X-Ale-Key": "other\xff"}, 401, None),
    ({"Authorization": f"Bearer {WORKER}"}, 200, None),
    ({"X-Api-Key": MANAGER}, 200, None),
    ({"X-Ale-Key": WORKER, "Authorization": "Bearer upstream"}, 200, "Bearer upstream"),
)


async def test_a_bridge_with_keys_adds_no_turns_for_who_has_none(tmp_path: Path) -> None:
    keys = Keys(manager=MANAGER, worker=WORKER)
    with openai_server({"*": {"text": "Hi."}}) as server:
        async with bridged(tmp_path / "run", keys, server.url) as (client, held):
            manager = {"Authorization": f"Bearer {MANAGER}"}
            for number, (headers, status, sent_on) in enumerate(KEYED):
                name = f"a{number}"
                await client.post("/tasks/assign", json={**ASSIGN, "id": name}, headers=manager)
                head = [(each, value.encode("latin-1")) for each, value in headers.items()]
                answer = await client.post(
                    "/v1/chat/completions",
                    json=CHAT,
                    headers=[(b"X-Ale-Session", name.encode()), *head],
                )
                assert answer.status_code == status, answer.text
                session = held.get(name)
                assert session is not None
                assert len(session.conversation.turns) == (status == 200)
                if status == 200:
                    arrived = server.requests()[-1]["headers"]
                    assert arrived.get("authorization") == sent_on
                    assert not {"x-ale-key", "x-api-key"} & arrived.keys()
        assert len(server.requests()) == 3


@pytest.mark.parametrize("path", ["/nothing", "/tasks/assign/", "/"])
async def test_the_bridge_says_in_json_what_is_not_there(path: str, tmp_path: Path) -> None:
    async with bridged(tmp_path / "run") as (client, _):
        for method, status in (("GET", 404), ("POST", 404)):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.headers["Content-Type"]) == (
                status,
                "application/json; charset=utf-8",
            )
            assert path in answer.json()["error"]["message"]
        wrong = await client.get("/tasks/assign/x/y")
        assert wrong.status_code == 404
        method_ = await client.put("/feedback", json={})
        assert (method_.status_code, method_.headers["Allow"]) == (405, "POST")
        assert method_.json()["error"]["type"] == "proxy_error"
        odd = await client.post("/feedback", json={}, headers={"Authorization": b"Bearer \xff"})
        assert odd.status_code == 422


async def test_a_page_can_not_assign_take_or_grade(tmp_path: Path) -> None:
    async with bridged(tmp_path / "run") as (client, held):
        await client.post("/tasks/assign", json=ASSIGN)
        for path in ("/tasks/assign", "/tasks/take", "/tasks/result", "/feedback"):
            for head, status in (
                ({"Content-Type": "text/plain"}, 415),
                ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
                ({"Content-Type": "application/json", "Host": "evil.example"}, 421),
            ):
                answer = await client.post(path, content=b"{}", headers=head)
                assert answer.status_code == status
        assert [session.assignment.state for session in held if session.assignment] == ["assigned"]
    assert not list(RunReader(tmp_path / "run").episodes)
