"""The kit of inference servers against a real vLLM on this machine's CPU."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ale_servers.client import Connections, HTTPServer
from ale_servers.protocol import InferenceServer
from ale_servers.records import Entry
from ale_servers.testing.contract import ServerContract, ServerLab


class TestVLLM(ServerContract):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> ServerLab:
        from .conftest import Lab

        return Lab(tmp_path / "weights")

    @pytest_asyncio.fixture
    async def bare(self, vllm: str) -> AsyncIterator[InferenceServer]:
        connections = Connections()
        yield HTTPServer(Entry(url=vllm), connections)
        await connections.aclose()
