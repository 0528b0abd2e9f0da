"""A server of the protocol behind HTTP, in this process."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from ale_servers.fetching import FetchedWeights
from ale_servers.protocol import InferenceServer
from ale_servers.web import routes


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the test's process."""
        yield


@asynccontextmanager
async def serving(server: InferenceServer, port: int = 0) -> AsyncIterator[str]:
    """Answer requests while the block runs; yields the base URL."""
    async with contextlib.aclosing(FetchedWeights()) as fetched:
        app = Starlette(routes=routes(server, lambda request: True, fetched))
        async with serving_app(app, port) as url:
            yield url


@asynccontextmanager
async def serving_app(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """As `serving`, for any application."""
    with socket.create_server(("127.0.0.1", port), backlog=2048) as listener:
        config = uvicorn.Config(
            app, lifespan="off", log_level="critical", timeout_graceful_shutdown=1
        )
        running = _Server(config)
        task = asyncio.create_task(running.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            running.should_exit = True
            await task
