"""Fixtures for an adapter's ``conftest.py``.

They need two of its own: `one_service`, the fake service of the session, and `build_one`, a
function of ``environ`` (None: that of the service), ``tags`` and options that builds a backend.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandboxing.remote.testing.services import FakeService

Build = Callable[..., SandboxBackend]


@pytest.fixture
def service(one_service: FakeService) -> Iterator[FakeService]:
    """The service, with nothing wrong."""
    one_service.forget_calls()
    one_service.go_wrong()
    yield one_service
    one_service.go_wrong()


@pytest_asyncio.fixture
async def make(service: FakeService, build_one: Build) -> AsyncIterator[Build]:
    """Build a backend; ``environ`` and ``tags`` apart, the arguments are options."""
    made: list[SandboxBackend] = []

    def make_one(
        environ: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        **options: Any,
    ) -> SandboxBackend:
        made.append(build_one(environ, tags or {}, **options))
        return made[-1]

    yield make_one
    for backend in made:
        await backend.aclose()


@pytest.fixture
def backend(make: Build) -> SandboxBackend:
    """One with its usual options."""
    return make()


@pytest_asyncio.fixture
async def box(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    """An open sandbox."""
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
