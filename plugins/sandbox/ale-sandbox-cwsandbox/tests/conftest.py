"""A fake service in a process of its own, and backends that talk to it through the real SDK."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandbox_cwsandbox.plugin import build

KEY = "the-fake-key"
Build = Callable[..., SandboxBackend]


class FakeService:
    """The process of `fake_service.py`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def go_wrong(self, **faults: Any) -> None:
        """Set what goes wrong from now on; without arguments, nothing."""
        new = self.folder / "faults.new"
        new.write_text(json.dumps(faults))
        new.rename(self.folder / "faults")

    def calls(self, name: str) -> list[Mapping[str, Any]]:
        """What it was asked, in order."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call["call"] == name]


@pytest.fixture(scope="session")
def one_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeService]:
    if shutil.which("bwrap") is None:
        pytest.skip("the fake service needs bubblewrap")
    folder = tmp_path_factory.mktemp("service")
    program = Path(__file__).with_name("fake_service.py")
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(
            [sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        # The kit names proxies that are not there; a remote backend has to reach its service.
        patch.setenv("no_grpc_proxy", "127.0.0.1")
        assert process.stdout is not None
        yield FakeService(folder, f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.send_signal(signal.SIGTERM)


@pytest.fixture
def service(one_service: FakeService) -> Iterator[FakeService]:
    """The service, with nothing wrong."""
    (one_service.folder / "calls").write_text("")
    one_service.go_wrong()
    yield one_service
    one_service.go_wrong()


@pytest_asyncio.fixture
async def make(service: FakeService) -> AsyncIterator[Build]:
    """Build a backend; ``environ`` and ``tags`` apart, the arguments are options."""
    made: list[SandboxBackend] = []

    def make_one(
        environ: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        **options: Any,
    ) -> SandboxBackend:
        given = {"CWSANDBOX_API_KEY": KEY} if environ is None else environ
        context = BuildContext(environ=given, tags=tags or {})
        made.append(build(CwSandboxOptions(base_url=service.url, **options), context))
        return made[-1]

    yield make_one
    for backend in made:
        await backend.aclose()


@pytest.fixture
def backend(make: Build) -> SandboxBackend:
    return make()


@pytest_asyncio.fixture
async def box(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
