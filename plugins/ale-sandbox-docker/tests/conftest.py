"""An engine for the tests, or the reason why there is none."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.protocols import Sandbox
from ale.types import SandboxSpec
from ale_sandbox_container.backend import ContainerBackend
from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN, has
from ale_sandbox_docker.plugin import DockerOptions, build, probe

Make = Callable[..., ContainerBackend]


@pytest.fixture(scope="session")
def engine() -> None:
    found = probe()
    if not found.usable:
        pytest.skip(f"docker: {found.reason}")


def image(name: str) -> str:
    if not has(["docker"], name):
        pytest.skip(f"make {name}: python -m ale_sandbox_container.testing_images docker")
    return name


@pytest.fixture(scope="session")
def busybox(engine: None) -> str:
    return image(BUSYBOX)


@pytest.fixture(scope="session")
def debian(engine: None) -> str:
    return image(DEBIAN)


@pytest.fixture
def make(busybox: str, tmp_path: Path) -> Make:
    """Build a backend with these options, and with `context` for fields of the BuildContext."""

    def make_backend(*, context: dict[str, Any] | None = None, **options: Any) -> ContainerBackend:
        options = {"image": busybox, "root": tmp_path / "state", **options}
        backend = build(DockerOptions(**options), BuildContext(**(context or {})))
        assert isinstance(backend, ContainerBackend)
        return backend

    return make_backend


@pytest.fixture
async def backend(make: Make) -> AsyncIterator[ContainerBackend]:
    made = make()
    yield made
    await made.aclose()


@pytest.fixture
async def box(backend: ContainerBackend) -> AsyncIterator[Sandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
