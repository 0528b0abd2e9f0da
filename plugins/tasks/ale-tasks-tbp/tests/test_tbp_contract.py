"""The contract kit, against the source and the shipped tasks."""

from pathlib import Path

import pytest

from ale.protocols import TaskSource
from ale.testing.tasks import TaskSourceContract
from ale_tasks_tbp.options import TbpOptions
from ale_tasks_tbp.source import TbpSource

ROOT = Path(__file__).resolve().parents[4]


class TestShippedTasks(TaskSourceContract):
    @pytest.fixture
    def source(self) -> TaskSource:
        return TbpSource(TbpOptions(path=ROOT / "tasks"))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        (tmp_path / "a.yaml").write_text("id: a b\ngoal: ''\nsuccess_criteria: []\n")
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "task.yaml").write_text("id: b\ngoal: go\nseccess_criteria: []\n")
        return TbpSource(TbpOptions(path=tmp_path))
