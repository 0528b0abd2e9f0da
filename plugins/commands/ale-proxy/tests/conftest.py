"""A proxy in front of real servers, each in a process of its own."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from attrs import field, frozen
from yarl import URL

from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.types import Episode
from ale_proxy.running import ProxyOptions, proxying, server_url
from ale_proxy.sessions import Sessions

CONFIG = {"chunker": {"type": "interaction"}}
Answers = dict[str, Sequence[str | float]]


@frozen
class Proxied:
    """A running proxy."""

    url: str
    """The base URL, as ``http://127.0.0.1:8800/v1``."""
    sessions: Sessions = field(repr=False)
    path: Path

    @property
    def port(self) -> int:
        return URL(self.url).port or 0

    def episodes(self) -> list[Episode]:
        """What is stored by now."""
        return list(RunReader(self.path).episodes)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that the proxy has; where bytes pass, also the one without uvloop."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "uvloop": uvloop.new_event_loop
    }
    if item.path.name in ("test_proxy_bytes.py", "test_proxy_journal.py"):
        factories["asyncio"] = asyncio.new_event_loop
    return factories


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Start a proxy in front of a server."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(upstream: str, middleware: Any = (), **options: Any) -> Proxied:
            path = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
            recording = Recording(path, CONFIG, Registry())
            stack.callback(recording.close)
            asked = ProxyOptions(upstream=upstream, port=0, **options)
            processed = asked.logprobs_mode == "processed"
            sessions = Sessions(
                recording, idle_s=asked.idle_s, processed=processed, middleware=middleware
            )
            running = proxying(asked, server_url(upstream), sessions, options.get("key_env"))
            url = await stack.enter_async_context(running)
            return Proxied(url, sessions, path)

        yield started


@pytest.fixture
def canned(tmp_path: Path) -> Iterator[Callable[[Answers], str]]:
    """Start a server with these answers by path; its URL."""
    with contextlib.ExitStack() as stack:

        def started(answers: Answers) -> str:
            file = tmp_path / "answers.json"
            file.write_text(json.dumps(answers))
            command = [sys.executable, str(Path(__file__).with_name("canned_server.py")), str(file)]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.terminate)
            assert process.stdout is not None
            return f"http://127.0.0.1:{process.stdout.readline().strip()}"

        yield started


async def ask_raw(port: int, request: bytes) -> bytes:
    """All bytes that come back up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    answered = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answered
