"""The model component, over the SDK and a service at loopback."""

from collections.abc import AsyncIterator, Callable

import pytest_asyncio

from ale.protocols import LLM
from ale.testing.llm import LLMContract
from ale_tinker.model import TinkerLLM


class TestModel(LLMContract):
    @pytest_asyncio.fixture
    async def llm(self, make_llm: Callable[..., TinkerLLM]) -> AsyncIterator[LLM]:
        made = make_llm()
        yield made
        await made.aclose()
