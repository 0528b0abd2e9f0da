"""The executor's contract, with a real server and two real workers."""

from collections.abc import Callable

import pytest

from ale.protocols import Executor
from ale.testing.executor import RemoteExecutorContract
from ale_nats.executor import NatsExecutor
from ale_nats.options import NatsOptions
from ale_nats.testing import LOST_AFTER_S, WorkerGroup


class TestNats(RemoteExecutorContract):
    @pytest.fixture
    def executor(self, group: WorkerGroup) -> Executor:
        return NatsExecutor(NatsOptions(url=group.url, lost_after_s=LOST_AFTER_S), {})

    @pytest.fixture
    def kill_a_worker(self, group: WorkerGroup) -> Callable[[int], None]:
        return group.kill
