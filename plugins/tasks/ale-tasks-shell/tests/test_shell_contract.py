"""The contract kit, against every split."""

from typing import get_args

import pytest

from ale.protocols import TaskSource
from ale.testing.tasks import TaskSourceContract
from ale_tasks_shell.options import ShellTasksOptions, Split
from ale_tasks_shell.source import ShellTasks


class TestShellTasks(TaskSourceContract):
    @pytest.fixture(params=get_args(Split))
    def source(self, request: pytest.FixtureRequest) -> TaskSource:
        options = ShellTasksOptions(seed=3, count=60, split=request.param, length=(2, 10))
        return ShellTasks(options)
