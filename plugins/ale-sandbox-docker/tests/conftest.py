"""An engine for the tests, or the reason why there is none."""

from types import ModuleType

import pytest

import ale_sandbox_docker.plugin
from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN

pytest.register_assert_rewrite("ale_sandbox_container.testing")

from ale_sandbox_container.testing import fixtures  # noqa: E402

make, host, box = map(pytest.fixture, (fixtures.make, fixtures.host, fixtures.box))
backend, small_limits = map(pytest.fixture, (fixtures.backend, fixtures.small_limits))


@pytest.fixture(scope="session")
def plugin() -> ModuleType:
    return ale_sandbox_docker.plugin


def _there(plugin: ModuleType, image: str) -> str:
    reason = fixtures.why_not(plugin, image)
    if reason is not None:
        pytest.skip(reason)
    return image


@pytest.fixture(scope="session")
def debian(plugin: ModuleType) -> str:
    return _there(plugin, DEBIAN)


@pytest.fixture(scope="session")
def busybox(plugin: ModuleType) -> str:
    return _there(plugin, BUSYBOX)


@pytest.fixture
def image(busybox: str) -> str:
    return busybox
