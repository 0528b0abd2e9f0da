"""What Docker's containers start with, and that nothing is left of them."""

from typing import Any

import pytest

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


class TestEnds(EndProbes):
    container_image = BUSYBOX
