"""An engine for the tests, or the reason why there is none."""

from types import ModuleType

import pytest

import ale_sandbox_podman.plugin
from ale_sandbox_container.testing import fixtures

make, host, box = map(pytest.fixture, (fixtures.make, fixtures.host, fixtures.box))
shells = pytest.fixture(scope="session")(fixtures.shells)
backend, small_limits = map(pytest.fixture, (fixtures.backend, fixtures.small_limits))


@pytest.fixture(scope="session")
def plugin() -> ModuleType:
    return ale_sandbox_podman.plugin


@pytest.fixture
def image(plugin: ModuleType, request: pytest.FixtureRequest) -> str:
    """A class of tests says which."""
    image: str = request.cls.container_image
    reason = fixtures.why_not(plugin, image)
    if reason is not None:
        pytest.skip(reason)
    return image
