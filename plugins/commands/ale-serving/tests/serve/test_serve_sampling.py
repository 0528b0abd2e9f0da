"""A model that samples by token ids is a server for training, too."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ale.errors import LLMError
from ale.testing.fakes import FakeLLM
from ale.testing.waiting import until
from ale_servers.client import Connections, HTTPServer
from ale_servers.records import Entry, SampleRequest
from ale_servers.registry import FolderRegistry, base_url
from ale_servers.testing.bigram import BigramServer
from ale_serving.serve.answering import Served
from ale_serving.serve.running import Endpoint, _serve, listening

HERE = Endpoint(host="127.0.0.1", port=0)


class Sampler(FakeLLM):
    """A model with an inference server."""

    def __init__(self) -> None:
        super().__init__([])
        self.server = BigramServer()


async def test_it_samples_by_ids_for_those_who_have_the_key() -> None:
    asked = SampleRequest(id="a", prompt_ids=(1, 2), max_tokens=5)
    right, wrong = Connections("secret"), Connections("guess")
    async with listening(Served(llm=Sampler(), name="m", key="secret"), HERE) as url:
        entry = Entry(url=base_url(url))
        assert len((await HTTPServer(entry, right).sample(asked)).ids) == 5
        for call in (HTTPServer(entry, wrong).sample(asked), HTTPServer(entry, wrong).resume()):
            with pytest.raises(LLMError, match="the key is missing or wrong"):
                await call
        await right.aclose()
        await wrong.aclose()


async def test_a_model_without_ids_has_no_such_routes() -> None:
    connections = Connections()
    async with listening(Served(llm=FakeLLM([]), name="m"), HERE) as url:
        with pytest.raises(LLMError, match="status 404, not by ale's protocol"):
            await HTTPServer(Entry(url=base_url(url)), connections).status()
        await connections.aclose()


async def test_a_server_is_registered_when_its_model_answers(tmp_path: Path) -> None:
    ready = asyncio.Event()

    class Starting(BigramServer):
        async def status(self) -> Any:
            await ready.wait()
            return await super().status()

    model = Sampler()
    model.server = Starting()
    said: list[str] = []
    served = Served(llm=model, name="m")
    endpoint = Endpoint(host="127.0.0.1", port=0, register=tmp_path / "servers")
    serving = asyncio.create_task(_serve(served, endpoint, said.append))
    registry = FolderRegistry(tmp_path / "servers")
    for _ in range(10):
        await asyncio.sleep(0.01)
        assert (said, registry.entries()) == ([], [])
    ready.set()
    await until(lambda: said)
    assert [entry.url + "/v1" for entry in registry.entries()] == said
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    assert registry.entries() == []
