"""Lets only who knows the key speak to vLLM, whose own check leaves out the routes for weights."""

import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]


class OnlyWithKey:
    """Answers 401 to every request without the key in the variable ``VLLM_API_KEY``.

    Named to vLLM as a middleware of ASGI.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.expected = b"Bearer " + os.environ["VLLM_API_KEY"].encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on what has the key, and the server's own start and end."""
        if scope["type"] == "lifespan" or self.has_key(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"a key is needed"})

    def has_key(self, scope: Any) -> bool:
        """Does a request have the key in its header?"""
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self.expected)
