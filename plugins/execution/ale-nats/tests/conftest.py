"""A NATS server and workers, each a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ale_nats.testing import WorkerGroup
from ale_nats_client.testing import Server, require_server, running_server


@pytest.fixture(scope="session", autouse=True)
def has_server() -> None:
    require_server()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests; each run has its own subjects."""
    with running_server(tmp_path_factory.mktemp("nats")) as made:
        yield made


@pytest.fixture(scope="session")
def group(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    """Two workers of that server."""
    made = WorkerGroup(server.url, tmp_path_factory.mktemp("workers"))
    made.start()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may stop."""
    with running_server(tmp_path / "nats") as made:
        yield made


@pytest.fixture
def own_group(own_server: Server, tmp_path: Path) -> Iterator[WorkerGroup]:
    """Workers of that one; none yet."""
    made = WorkerGroup(own_server.url, tmp_path / "workers")
    yield made
    made.stop()
