"""The executor `local`: jobs run in the run's own process."""

import pytest

from ale._builtin import Local
from ale.protocols import Executor
from ale.testing.executor import ExecutorContract


class TestLocal(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Executor:
        return Local()
