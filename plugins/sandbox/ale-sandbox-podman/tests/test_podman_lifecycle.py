"""What Podman's containers start with, and that nothing is left of them."""

from typing import Any

import pytest

from ale_sandbox_container_testing.distance import DistanceProbes
from ale_sandbox_container_testing.ends import EndProbes, kill_hosts
from ale_sandbox_container_testing.images import BUSYBOX, DEBIAN
from ale_sandbox_container_testing.network import NetworkProbes
from ale_sandbox_container_testing.privileges import PrivilegeProbes
from ale_sandbox_container_testing.starts import StartProbes
from ale_sandbox_container_testing.tools import Make

pytestmark = pytest.mark.engine


class TestStarts(StartProbes):
    container_image = BUSYBOX


class TestDistance(DistanceProbes):
    container_image = BUSYBOX


class TestPrivileges(PrivilegeProbes):
    container_image = DEBIAN


class TestReaching(NetworkProbes):
    container_image = DEBIAN


class TestEnds(EndProbes):
    container_image = BUSYBOX

    @pytest.mark.long
    async def test_five_hundred_random_kills_leave_nothing_after_prune(
        self, make: Make, host: tuple[str, dict[str, Any]]
    ) -> None:
        print(await kill_hosts(make, host, sandboxes=500, max_parallel=10))
