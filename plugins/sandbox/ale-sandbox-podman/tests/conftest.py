"""The fixtures of all container sandboxes, for Podman."""

from types import ModuleType

import pytest

import ale_sandbox_podman.plugin
from ale_sandboxing.container_testing.fixtures import *  # noqa: F403 - pytest finds them by name


@pytest.fixture(scope="session")
def plugin() -> ModuleType:
    return ale_sandbox_podman.plugin
