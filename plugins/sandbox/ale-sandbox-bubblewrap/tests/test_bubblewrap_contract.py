"""The bubblewrap sandbox keeps the contract of every sandbox, in each of its shapes."""

from collections.abc import Callable

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract
from ale_sandbox_bubblewrap.cgroups import Cgroups

Build = Callable[..., SandboxBackend]
SMALL = {"processes": 64, "file_size_mb": 8, "cpu_s": 1}
POOR = {"overlay": "no such device", "cgroups": Cgroups({}, 1)}


class TestBubblewrap(SandboxContract):
    @pytest.fixture
    def backend(self, shared: Build) -> SandboxBackend:
        return shared()

    @pytest.fixture
    def small_limits(self, shared: Build) -> SandboxBackend:
        return shared(**SMALL)


@pytest.mark.long
class TestWithoutLayersAndControlGroups(SandboxContract):
    """What is left where the kernel has no overlays for users, and nobody may make groups."""

    @pytest.fixture
    def backend(self, shared: Build) -> SandboxBackend:
        backend = shared(changed=POOR)
        assert backend.capabilities.fork == "copy"
        assert backend.capabilities.limits["memory"] == "best-effort"
        return backend

    @pytest.fixture
    def small_limits(self, shared: Build) -> SandboxBackend:
        return shared(changed=POOR, **SMALL)


@pytest.mark.long
class TestInMemory(SandboxContract):
    """What is written is kept in memory, within a limit."""

    @pytest.fixture
    def backend(self, shared: Build) -> SandboxBackend:
        backend = shared(disk_mb=200)
        assert backend.capabilities.limits["disk"] == "enforced"
        return backend

    @pytest.fixture
    def small_limits(self, shared: Build) -> SandboxBackend:
        return shared(disk_mb=200, **SMALL)
