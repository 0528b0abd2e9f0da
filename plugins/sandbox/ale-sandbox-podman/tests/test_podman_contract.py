"""Podman keeps the contract of every sandbox; in the image there may be nothing but a shell.

With a larger image it is a long test: Docker's tests show both, through the same library.
"""

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract
from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN

pytestmark = pytest.mark.engine


class TestPodmanWithBusybox(SandboxContract):
    container_image = BUSYBOX
    many = 12
    concurrency = 6

    @pytest.fixture
    def backend(self, backend: SandboxBackend) -> SandboxBackend:
        return backend

    @pytest.fixture
    def small_limits(self, small_limits: SandboxBackend) -> SandboxBackend:
        return small_limits


@pytest.mark.long
class TestPodmanWithDebian(TestPodmanWithBusybox):
    """The shell is dash, sessions are bash."""

    container_image = DEBIAN
