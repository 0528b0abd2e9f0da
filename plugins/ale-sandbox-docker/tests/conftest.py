"""An engine for the tests, or the reason why there is none."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandbox_container.backend import ContainerBackend
from ale_sandbox_container.sandbox import ContainerSandbox
from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN, has
from ale_sandbox_docker.plugin import DockerOptions, build, probe

pytest.register_assert_rewrite("ale_sandbox_container.testing")

Make = Callable[..., ContainerBackend]


@pytest.fixture(scope="session")
def engine() -> None:
    found = probe()
    if not found.usable:
        pytest.skip(f"docker: {found.reason}")


def _there(name: str) -> str:
    if not has(["docker"], name):
        pytest.skip(f"make {name}: python -m ale_sandbox_container.testing_images docker")
    return name


@pytest.fixture(scope="session")
def busybox(engine: None) -> str:
    return _there(BUSYBOX)


@pytest.fixture(scope="session")
def debian(engine: None) -> str:
    return _there(DEBIAN)


@pytest.fixture
def image(busybox: str) -> str:
    return busybox


@pytest.fixture
def make(image: str, tmp_path: Path) -> Make:
    """Build a backend with these options, and with `context` for fields of the BuildContext."""

    def make_backend(*, context: dict[str, Any] | None = None, **options: Any) -> ContainerBackend:
        options = {"image": image, "root": tmp_path / "state", **options}
        backend = build(DockerOptions(**options), BuildContext(**(context or {})))
        assert isinstance(backend, ContainerBackend)
        return backend

    return make_backend


@pytest.fixture
def host(image: str, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """What a host process needs to build the same backend."""
    return "ale_sandbox_docker.plugin", {"image": image, "root": str(tmp_path / "state")}


@pytest.fixture
async def backend(make: Make) -> AsyncIterator[ContainerBackend]:
    made = make()
    yield made
    await made.aclose()


@pytest.fixture
async def box(backend: ContainerBackend) -> AsyncIterator[ContainerSandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
