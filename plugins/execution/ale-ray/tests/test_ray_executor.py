"""The executor ``ray`` on a cluster of nodes on this machine."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.protocols import Executor
from ale.testing.executor import RemoteExecutorContract
from ale_ray.executor import RayExecutor
from ale_ray.options import RayOptions

pytestmark = pytest.mark.filterwarnings("ignore")


def ancestors(pid: int) -> list[int]:
    found = [pid]
    while found[-1] > 1:
        stat = Path(f"/proc/{found[-1]}/stat").read_text()
        found.append(int(stat.rpartition(")")[2].split()[1]))
    return found


class TestRay(RemoteExecutorContract):
    @pytest.fixture
    def executor(self, cluster: Any) -> Executor:
        return RayExecutor(RayOptions(address=cluster.address, resource="one"))

    @pytest.fixture
    def kill_a_worker(self) -> Callable[[int], None]:
        def kill(pid: int) -> None:
            for each in ancestors(pid):
                if b"ray::" in Path(f"/proc/{each}/cmdline").read_bytes():
                    os.kill(each, signal.SIGKILL)
                    return
            raise AssertionError("no actor runs it")

        return kill
