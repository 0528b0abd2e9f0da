"""What Podman's containers start with, and that nothing is left of them."""

from collections.abc import Callable
from typing import Any

import pytest

from ale_sandbox_container.backend import ContainerBackend
from ale_sandbox_container.testing.ends import EndProbes, kill_hosts
from ale_sandbox_container.testing.starts import StartProbes

pytestmark = pytest.mark.engine


class TestStarts(StartProbes): ...


class TestEnds(EndProbes):
    @pytest.mark.long
    async def test_a_hundred_random_kills_leave_nothing_after_prune(
        self, make: Callable[..., ContainerBackend], host: tuple[str, dict[str, Any]]
    ) -> None:
        await kill_hosts(make(), host, sandboxes=100, at_once=5)
