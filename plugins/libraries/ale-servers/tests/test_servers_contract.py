"""The kit, for a server without a neural network: itself, and behind HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ale_servers.client import Connections, HTTPServer
from ale_servers.protocol import InferenceServer
from ale_servers.records import Entry
from ale_servers.testing.adapters import AdapterContract, AdapterLab
from ale_servers.testing.bigram import BigramLab, BigramServer
from ale_servers.testing.contract import ServerContract, ServerLab
from ale_servers.testing.serving import serving


class TestBigrams(ServerContract):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> ServerLab:
        return BigramLab(tmp_path / "weights")

    @pytest_asyncio.fixture
    async def bare(self) -> InferenceServer:
        return BigramServer(token_s=0.001)


class TestAdapters(AdapterContract):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> AdapterLab:
        return BigramLab(tmp_path / "weights")

    @pytest_asyncio.fixture
    async def bare(self) -> InferenceServer:
        return BigramServer(token_s=0.001)


class TestOverHTTP(TestBigrams):
    @pytest_asyncio.fixture
    async def bare(self) -> AsyncIterator[InferenceServer]:
        connections = Connections()
        async with serving(BigramServer(token_s=0.001)) as url:
            yield HTTPServer(Entry(url=url), connections)
            await connections.aclose()
