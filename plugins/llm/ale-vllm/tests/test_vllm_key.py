"""vLLM answers nobody but the gateway that started it."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from ale_servers.client import Connections
from ale_servers.program import Asked, free_port
from ale_vllm.inside.ale_vllm_key import OnlyWithKey


@pytest.mark.parametrize(
    ("kind", "authorization", "passes"),
    [
        ("http", b"Bearer secret", True),
        ("http", b"Bearer other", False),
        ("http", b"", False),
        ("websocket", b"", False),
        ("lifespan", b"", True),
    ],
)
def test_every_route_needs_the_key(
    monkeypatch: pytest.MonkeyPatch, kind: str, authorization: bytes, passes: bool
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    passed: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": "/pause", "headers": [(b"authorization", authorization)]}
    asyncio.run(OnlyWithKey(app)(scope, None, send))
    assert bool(passed) == passes
    if kind == "http" and not passes:
        assert sent[0]["status"] == 401


async def test_the_gateway_sends_the_key() -> None:
    async def told(request: web.Request) -> web.Response:
        return web.json_response(request.headers.get("Authorization"))

    app, port, connections = web.Application(), free_port(), Connections()
    app.router.add_get("/health", told)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        url = f"http://127.0.0.1:{port}"
        assert await Asked(url, connections, "secret").get("/health") == "Bearer secret"
        assert await Asked(url, connections).get("/health") is None
    finally:
        await connections.aclose()
        await runner.cleanup()
