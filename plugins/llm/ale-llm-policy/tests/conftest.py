"""A small policy, and models that sample from it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ale_llm_policy.build import wrap_policy
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.testing import Make, new_policy


@pytest.fixture
def policy() -> TorchPolicy:
    return new_policy()


@pytest_asyncio.fixture
async def make(policy: TorchPolicy) -> AsyncIterator[Make]:
    made: list[PolicyLLM] = []

    def _make(**options: Any) -> PolicyLLM:
        made.append(wrap_policy(policy, PolicyOptions(**options)))
        return made[-1]

    yield _make
    for llm in made:
        await llm.aclose()
