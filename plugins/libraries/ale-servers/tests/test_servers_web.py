"""What the routes refuse, and connections that are kept open."""

import asyncio
import threading
import time

import aiohttp
import msgspec
import pytest

from ale_servers import web
from ale_servers.client import Connections, HTTPServer
from ale_servers.records import Entry, Refusal
from ale_servers.testing.bigram import BigramServer
from ale_servers.testing.serving import serving


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
