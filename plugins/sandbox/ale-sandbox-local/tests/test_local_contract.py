"""The local sandbox keeps the contract of every sandbox."""

import shutil
from collections.abc import Callable

import pytest

from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract
from ale.testing.sandbox.session import SessionProbes


class TestLocal(SandboxContract):
    @pytest.fixture
    def backend(self, make: Callable[..., SandboxBackend]) -> SandboxBackend:
        return make()

    @pytest.fixture
    def small_limits(self, make: Callable[..., SandboxBackend]) -> SandboxBackend:
        return make(processes=64, file_size_mb=8, cpu_s=1)


class TestSessionsWithoutBash(SessionProbes):
    """Where there is no bash, a session is a ``/bin/sh``."""

    @pytest.fixture
    def backend(
        self, make: Callable[..., SandboxBackend], monkeypatch: pytest.MonkeyPatch
    ) -> SandboxBackend:
        monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
        return make()
