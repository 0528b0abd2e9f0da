"""What Docker's containers start with, and that nothing is left of them."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from ale_sandboxing.container.sealed import SealedShells
from ale_sandboxing.container_testing.distance import DistanceProbes
from ale_sandboxing.container_testing.ends import EndProbes
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN
from ale_sandboxing.container_testing.network import NetworkProbes
from ale_sandboxing.container_testing.privileges import PrivilegeProbes
from ale_sandboxing.container_testing.starts import StartProbes
from ale_sandboxing.container_testing.tools import Make, opened

pytestmark = pytest.mark.engine


class TestStarts(StartProbes):
    container_image = BUSYBOX

    async def test_an_engine_that_stops_waits_for_no_sandbox(self, make: Make) -> None:
        backend = make()
        async with opened(backend) as box:
            engine: Any = backend._engine
            found = engine._api.inspect_container(f"ale-{box.id}")
        assert found["Config"]["StopSignal"] == "SIGKILL"


class TestDistance(DistanceProbes):
    container_image = BUSYBOX


class TestPrivileges(PrivilegeProbes):
    container_image = DEBIAN


class TestReaching(NetworkProbes):
    container_image = DEBIAN

    @pytest.fixture
    def new_network(self, shells: SealedShells, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """One in place of that of all sandboxes, which an earlier version may have made."""
        name = f"ale-test-{uuid4().hex[:12]}"
        monkeypatch.setattr("ale_sandbox_docker.engine._APART", name)
        yield
        shells._engine._ask("DELETE", f"/networks/{name}", 404)


class TestEnds(EndProbes):
    container_image = BUSYBOX
