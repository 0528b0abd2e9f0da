"""A backend whose folders are the test's own."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap.plugin import BubblewrapOptions, build, probe

MakeBackend = Callable[..., SandboxBackend]


@pytest.fixture(scope="session", autouse=True)
def usable() -> None:
    found = probe()
    if not found.usable:
        pytest.skip(f"bubblewrap: {found.reason}")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    return {"XDG_RUNTIME_DIR": str(runtime)}


@pytest_asyncio.fixture
async def make(environ: dict[str, str], tmp_path: Path) -> AsyncIterator[MakeBackend]:
    """Build a backend with these options, and with `context` for fields of the BuildContext."""
    made: list[SandboxBackend] = []

    def make_backend(*, context: dict[str, Any] | None = None, **options: Any) -> SandboxBackend:
        built = BuildContext(environ=environ, **(context or {}))
        made.append(build(BubblewrapOptions(root=tmp_path, **options), built))
        return made[-1]

    yield make_backend
    for backend in made:
        await backend.aclose()


@pytest.fixture
def backend(make: MakeBackend) -> SandboxBackend:
    return make()


@pytest_asyncio.fixture
async def box(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
