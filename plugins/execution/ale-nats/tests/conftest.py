"""A NATS server and workers, each a process of its own."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale_nats.testing import WorkerGroup
from ale_nats_client.testing import Server


@pytest.fixture(scope="session", autouse=True)
def has_server() -> None:
    """Skip where there is no server program, but not in CI."""
    if shutil.which("nats-server") is None:
        assert os.environ.get("CI") != "true", "CI must have nats-server"
        pytest.skip("nats-server is not installed (Debian: apt-get install nats-server)")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, has_server: None) -> Iterator[Server]:
    """A server for all tests; each run has its own subjects."""
    made = Server(tmp_path_factory.mktemp("nats"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def group(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    """Two workers of that server."""
    made = WorkerGroup(server.url, tmp_path_factory.mktemp("workers"))
    made.start()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path: Path, has_server: None) -> Iterator[Server]:
    """A server that a test may stop."""
    made = Server(tmp_path / "nats")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_group(own_server: Server, tmp_path: Path) -> Iterator[WorkerGroup]:
    """Workers of that one; none yet."""
    made = WorkerGroup(own_server.url, tmp_path / "workers")
    yield made
    made.stop()
