"""A fake service in a process of its own, and backends that talk to it through the real SDK."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.protocols import SandboxBackend
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandbox_cwsandbox.plugin import build
from ale_sandboxing.remote.testing.fixtures import Build, backend, box, make, service
from ale_sandboxing.remote.testing.services import FakeService, running

__all__ = ["backend", "box", "make", "service"]
KEY = "the-fake-key"


@pytest.fixture(scope="session")
def one_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeService]:
    if shutil.which("bwrap") is None:
        pytest.skip("the fake service needs bubblewrap")
    folder = tmp_path_factory.mktemp("service")
    program = Path(__file__).with_name("fake_service.py")
    with pytest.MonkeyPatch.context() as patch, running(program, folder) as service:
        # The kit names proxies that are not there; a remote backend has to reach its service.
        patch.setenv("no_grpc_proxy", "127.0.0.1")
        yield service
    # Sandboxes leave folders that are deeper than pytest can remove.
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


@pytest.fixture
def build_one(service: FakeService) -> Build:
    def build_one(
        environ: Mapping[str, str] | None, tags: Mapping[str, str], **options: Any
    ) -> SandboxBackend:
        given = {"CWSANDBOX_API_KEY": KEY} if environ is None else environ
        context = BuildContext(environ=given, tags=tags)
        return build(CwSandboxOptions(base_url=service.url, **options), context)

    return build_one
