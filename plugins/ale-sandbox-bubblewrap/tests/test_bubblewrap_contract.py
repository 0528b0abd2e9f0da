"""The bubblewrap sandbox keeps the contract of every sandbox."""

from collections.abc import Callable

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract


class TestBubblewrap(SandboxContract):
    @pytest.fixture
    def backend(self, make: Callable[..., SandboxBackend]) -> SandboxBackend:
        return make()

    @pytest.fixture
    def small_limits(self, make: Callable[..., SandboxBackend]) -> SandboxBackend:
        return make(processes=64, file_size_mb=8, cpu_s=1)
