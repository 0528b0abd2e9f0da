"""A backend whose folders are the test's own."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.plugin import build

MakeBackend = Callable[..., SandboxBackend]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    return {"XDG_RUNTIME_DIR": str(runtime)}


@pytest.fixture
def make(environ: dict[str, str], tmp_path: Path) -> MakeBackend:
    """Build a backend with these options, and with `context` for fields of the BuildContext."""

    def make_backend(*, context: dict[str, Any] | None = None, **options: Any) -> SandboxBackend:
        built = BuildContext(environ=environ, **(context or {}))
        return build(LocalOptions(root=tmp_path, **options), built)

    return make_backend


@pytest.fixture
def backend(make: MakeBackend) -> SandboxBackend:
    return make()


@pytest.fixture
async def box(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
