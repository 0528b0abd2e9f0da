"""What a network does to calls, and what only this service can answer."""

import pytest

from ale.protocols import SandboxBackend
from ale_sandboxing.remote.testing.faults import FaultProbes
from ale_sandboxing.remote.testing.services import FakeService

# The SDK warns of listed sandboxes that it sees no end of.
pytestmark = pytest.mark.filterwarnings("ignore:Sandbox .* was not stopped:ResourceWarning")


class TestFaults(FaultProbes):
    async def test_busy_machines_are_waited_for_like_a_quota(
        self, service: FakeService, backend: SandboxBackend
    ) -> None:
        await self.check_quota_of_two(service, backend, quota=2, busy=True)
