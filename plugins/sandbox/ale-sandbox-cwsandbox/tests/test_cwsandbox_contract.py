"""The remote sandbox keeps the contract of every sandbox, over the real SDK and a fake service."""

from collections.abc import Callable

import pytest

from ale.errors import SandboxError
from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract

# The SDK warns of listed sandboxes that it sees no end of.
pytestmark = pytest.mark.filterwarnings("ignore:Sandbox .* was not stopped:ResourceWarning")


class TestCwSandbox(SandboxContract):
    many = 12
    concurrency = 6
    hurt = SandboxError

    @pytest.fixture
    def backend(self, backend: SandboxBackend) -> SandboxBackend:
        return backend

    @pytest.fixture
    def small_limits(self, make: Callable[..., SandboxBackend]) -> SandboxBackend:
        return make(memory_mb=256)
