"""Podman keeps the contract of every sandbox; in the image there may be nothing but a shell."""

from collections.abc import Callable

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract
from ale_sandbox_container.backend import ContainerBackend

pytestmark = pytest.mark.engine


class TestPodmanWithBusybox(SandboxContract):
    many = 12
    at_once = 6

    @pytest.fixture
    def backend(self, make: Callable[..., ContainerBackend]) -> SandboxBackend:
        return make()

    @pytest.fixture
    def small_limits(self, make: Callable[..., ContainerBackend]) -> SandboxBackend:
        return make(memory_mb=256, processes=64, file_size_mb=8, cpu_s=1)


class TestPodmanWithDebian(TestPodmanWithBusybox):
    """The shell is dash, sessions are bash."""

    @pytest.fixture
    def image(self, debian: str) -> str:
        return debian
