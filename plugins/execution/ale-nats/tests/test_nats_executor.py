"""The executor's contract, with a real server and two real workers."""

from collections.abc import Callable

import pytest

from ale.protocols import Executor
from ale.testing.executor import RemoteExecutorContract
from ale_nats.executor import NatsExecutor
from ale_nats.options import NatsOptions
from ale_nats.testing import LOST_AFTER_S, Fleet


class TestNats(RemoteExecutorContract):
    @pytest.fixture
    def executor(self, fleet: Fleet) -> Executor:
        return NatsExecutor(NatsOptions(url=fleet.url, lost_after_s=LOST_AFTER_S), {})

    @pytest.fixture
    def kill_a_worker(self, fleet: Fleet) -> Callable[[int], None]:
        return fleet.kill
