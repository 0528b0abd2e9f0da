"""Docker keeps the contract of every sandbox; in the image there may be nothing but a shell."""

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract
from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestDockerWithBusybox(SandboxContract):
    container_image = BUSYBOX
    many = 12
    concurrency = 6

    @pytest.fixture
    def backend(self, backend: SandboxBackend) -> SandboxBackend:
        return backend

    @pytest.fixture
    def small_limits(self, small_limits: SandboxBackend) -> SandboxBackend:
        return small_limits


class TestDockerWithDebian(TestDockerWithBusybox):
    """The shell is dash, sessions are bash."""

    container_image = DEBIAN
