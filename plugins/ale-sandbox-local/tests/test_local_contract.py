"""The local sandbox keeps the contract of every sandbox."""

from pathlib import Path

import pytest
from ale.plugin import BuildContext
from ale.protocols import SandboxBackend
from ale.testing.sandbox import SandboxContract
from ale_sandbox_local.plugin import LocalOptions, build


class TestLocal(SandboxContract):
    @pytest.fixture
    def context(self, tmp_path: Path) -> BuildContext:
        runtime = tmp_path / "runtime"
        runtime.mkdir()
        return BuildContext(environ={"XDG_RUNTIME_DIR": str(runtime)})

    @pytest.fixture
    def backend(self, context: BuildContext, tmp_path: Path) -> SandboxBackend:
        return build(LocalOptions(root=tmp_path), context)

    @pytest.fixture
    def small_limits(self, context: BuildContext, tmp_path: Path) -> SandboxBackend:
        options = LocalOptions(root=tmp_path, processes=64, file_size_mb=8, cpu_s=1)
        return build(options, context)
