"""The remote sandbox keeps the contract of every sandbox, over the real SDK and a fake service."""

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract


class TestE2b(SandboxContract):
    many = 12
    concurrency = 6

    @pytest.fixture
    def backend(self, backend: SandboxBackend) -> SandboxBackend:
        return backend
