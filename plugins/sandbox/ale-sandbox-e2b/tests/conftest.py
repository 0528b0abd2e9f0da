"""A fake service in a process of its own, and backends that talk to it through the real SDK."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_e2b.options import E2bOptions
from ale_sandbox_e2b.plugin import build
from ale_sandbox_remote.testing.services import FakeService, running

KEY = "the-fake-key"
Build = Callable[..., SandboxBackend]


@pytest.fixture(scope="session")
def one_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeService]:
    if shutil.which("bwrap") is None:
        pytest.skip("the fake service needs bubblewrap")
    folder = tmp_path_factory.mktemp("service")
    program = Path(__file__).with_name("fake_service.py")
    with pytest.MonkeyPatch.context() as patch, running(program, folder) as service:
        # The kit names proxies that are not there; a remote backend has to reach its service.
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        patch.setenv("E2B_HTTP_VERSION", "1.1")
        # The pool of connections is no leak.
        patch.setenv("E2B_MAX_KEEPALIVE_CONNECTIONS", "2")
        yield service


@pytest.fixture
def service(one_service: FakeService) -> Iterator[FakeService]:
    """The service, with nothing wrong."""
    one_service.forget_calls()
    one_service.go_wrong()
    yield one_service
    one_service.go_wrong()


@pytest_asyncio.fixture
async def make(service: FakeService) -> AsyncIterator[Build]:
    """Build a backend; ``environ`` and ``tags`` apart, the arguments are options."""
    made: list[SandboxBackend] = []

    def make_one(
        environ: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        **options: Any,
    ) -> SandboxBackend:
        given = {"E2B_API_KEY": KEY} if environ is None else environ
        place = {"E2B_API_URL": service.url, "E2B_SANDBOX_URL": service.url}
        context = BuildContext(environ={**place, **given}, tags=tags or {})
        made.append(build(E2bOptions(**options), context))
        return made[-1]

    yield make_one
    for backend in made:
        await backend.aclose()


@pytest.fixture
def backend(make: Build) -> SandboxBackend:
    return make()


@pytest_asyncio.fixture
async def box(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
