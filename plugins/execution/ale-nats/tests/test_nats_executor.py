"""The executor's contract, with a real server and two real workers."""

import re
from collections.abc import Callable

import pytest

from ale.protocols import Executor
from ale.testing.executor import RemoteExecutorContract
from ale_nats.executor import NatsExecutor
from ale_nats.options import NatsOptions
from ale_nats.subjects import run_token, subject
from ale_nats.testing import LOST_AFTER_S, WorkerGroup


class TestNats(RemoteExecutorContract):
    @pytest.fixture
    def executor(self, group: WorkerGroup) -> Executor:
        return NatsExecutor(NatsOptions(url=group.url, lost_after_s=LOST_AFTER_S), {})

    @pytest.fixture
    def kill_a_worker(self, group: WorkerGroup) -> Callable[[int], None]:
        return group.kill


def test_runs_with_different_ids_have_different_subjects_of_one_token() -> None:
    tokens = [run_token(id) for id in ("a-b", "a.b", "a b", "a*b", "a>b", "\u00e4-b")]
    assert len({*tokens}) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", token) for token in tokens)
    assert subject("job", tokens[0], "*") == "ale.v1.job.a-b.*"
