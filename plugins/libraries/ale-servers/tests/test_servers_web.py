"""What the routes refuse, and connections that are kept open."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from starlette.applications import Starlette

from ale_openai_wire import Admission
from ale_servers import web
from ale_servers.client import Connections, HTTPServer
from ale_servers.fetching import FetchedWeights
from ale_servers.records import Entry, Refusal
from ale_servers.testing.bigram import BigramServer
from ale_servers.testing.serving import serving, serving_app


async def test_a_body_that_is_too_long_is_refused_and_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "MOST_BODY", 1000)
    async with serving(BigramServer(token_s=0.001)) as url, aiohttp.ClientSession() as client:
        for n, status in ((1001, 413), (1000, 200)):
            body = b'{"ids": []' + b" " * (n - 11) + b"}"
            head = {"Content-Type": "application/json"}
            async with client.post(f"{url}/ale/abort", data=body, headers=head) as answer:
                assert answer.status == status
                content = await answer.read()
            if status == 413:
                refusal = msgspec.json.decode(content, type=Refusal)
                assert refusal == Refusal(
                    kind="invalid", message="the request is longer than 1000 bytes"
                )


async def test_a_body_that_is_not_utf_8_is_refused() -> None:
    async with serving(BigramServer()) as url, aiohttp.ClientSession() as client:
        head = {"Content-Type": "application/json"}
        async with client.post(f"{url}/ale/abort", data=b'{"ids": ["\xff"]}', headers=head) as sent:
            assert sent.status == 400


async def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    # A server in a thread of its own ends idle connections while this loop is held up, so that the
    # client can't see it; it closes them after 5 s, as vLLM does.
    started, stop = threading.Event(), threading.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with serving(BigramServer(token_s=0.001)) as url:
            urls.append(url)
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    connections = Connections()
    try:
        assert await asyncio.to_thread(started.wait, 60)
        server = HTTPServer(Entry(url=urls[0]), connections)
        await server.status()
        time.sleep(5.5)  # noqa: ASYNC251 - the loop is held up
        await server.status()
    finally:
        await connections.aclose()
        stop.set()
        await asyncio.to_thread(thread.join)


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A listener on loopback: its port, and what it has been asked."""
    asked: list[bytes] = []

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(heard, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1], asked


@pytest.mark.parametrize(
    ("host", "key", "folder"),
    [
        ("127.0.0.1", "admin/delete?x=", "/a/v00000001"),
        ("127.0.0.1", "", "/a/v00000001"),
        ("127.0.0.1", "k", "/a/other?x=/v00000001x"),
        ("192.0.2.1", "k", "/a/v00000001"),
        ("no.such.host.invalid", "k", "/a/v00000001"),
    ],
)
async def test_a_server_without_a_key_asks_nobody_elsewhere_and_no_other_path(
    host: str, key: str, folder: str
) -> None:
    async with (
        watched() as (port, asked),
        serving(BigramServer()) as url,
        aiohttp.ClientSession() as client,
    ):
        for verb in ("prepare", "update"):
            body: dict[str, Any] = {"version": 1, "digest": "d", "folder": folder}
            body["origin"] = {"host": host, "port": port, "key": key}
            async with client.post(f"{url}/ale/{verb}", json=body) as answer:
                assert (answer.status, (await answer.json())["kind"]) == (409, "weights")
        body = {"version": 1, "digest": "d"}
        body["broadcast"] = {"backend": "gloo", "host": "192.0.2.1", "port": port, "store": port}
        body["broadcast"] |= {"key": "k", "parts": []}
        async with client.post(f"{url}/ale/prepare", json=body) as answer:
            refusal = await answer.json()
            assert (answer.status, refusal["kind"]) == (409, "weights")
            assert "has no weights from '192.0.2.1'" in refusal["message"]
        assert asked == []


async def test_a_server_with_a_key_asks_where_its_owner_says() -> None:
    server, host = BigramServer(), "no.such.host.invalid"
    body: dict[str, Any] = {"version": 1, "digest": "d", "folder": "/a/v00000001"}
    body["origin"] = {"host": host, "port": 9, "key": "k"}
    for keyed in (False, True):
        async with contextlib.aclosing(FetchedWeights()) as fetched:
            routes = web.routes(server, lambda _: True, fetched, keyed=keyed)
            async with (
                serving_app(Starlette(routes=routes)) as url,
                aiohttp.ClientSession() as client,
                client.post(f"{url}/ale/prepare", json=body) as answer,
            ):
                message = (await answer.json())["message"]
        assert host in message
        assert ("a server without a key" in message) != keyed


async def test_a_pause_has_an_end() -> None:
    async with serving(BigramServer()) as url, aiohttp.ClientSession() as client:
        for seconds, status in ((1e12, 400), (3601, 400), (-1, 400), (0.1, 200)):
            body = {"mode": "keep", "seconds": seconds}
            async with client.post(f"{url}/ale/pause", json=body) as answer:
                assert answer.status == status


REFUSED = (
    ({"Host": "evil.example"}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Content-Type": "text/plain"}, 415),
)


async def test_what_a_page_could_send_is_refused_where_an_application_is_guarded() -> None:
    server = BigramServer()
    async with contextlib.aclosing(FetchedWeights()) as fetched:
        app = web.guarded(
            Starlette(routes=web.routes(server, lambda _: True, fetched)), Admission()
        )
        async with serving_app(app) as url, aiohttp.ClientSession() as client:
            for head, status in REFUSED:
                given = {"Content-Type": "application/json", **head}
                async with client.post(f"{url}/ale/abort", data=b"{}", headers=given) as answer:
                    content = await answer.read()
                    assert answer.status == status
                assert msgspec.json.decode(content, type=Refusal).kind == "invalid"
            async with client.post(f"{url}/ale/abort", json={}) as answer:
                assert answer.status == 200
