"""Source and criterion keep their contracts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ale.protocols import Criterion, Sandbox, TaskSource
from ale.testing.criterion import CriterionContract
from ale.testing.tasks import TaskSourceContract
from ale.types import Task
from ale_tasks_swe.options import SweOptions
from ale_tasks_swe.plugin import ale_criteria, ale_task_sources
from ale_tasks_swe.source import swe

from .conftest import criterion_of, set_up


def test_the_package_registers_a_source_and_a_criterion() -> None:
    assert [component.name for component in ale_task_sources()] == ["swe"]
    assert [component.name for component in ale_criteria()] == ["swe_tests"]


class TestSwe(TaskSourceContract):
    @pytest.fixture
    def source(self, cache: Path) -> TaskSource:
        return swe(SweOptions(sample=True, cache=cache))

    @pytest.fixture
    def broken_source(self, tmp_path: Path) -> TaskSource:
        (tmp_path / "test.jsonl").write_text(
            '{"instance_id": "a-1", "repo": "a/b", "base_commit": "main"}\n\n{"repo": "a/b"}\n'
        )
        return swe(SweOptions(path=tmp_path, cache=tmp_path / "cache"))


class TestSweTests(CriterionContract):
    @pytest.fixture
    def given(self, tasks: Mapping[str, Task]) -> Task:
        return tasks["ranges"]

    @pytest.fixture
    def criterion(self, given: Task) -> Criterion:
        return criterion_of(given)

    @pytest.fixture(autouse=True)
    def _remember(self, given: Task) -> None:
        self.given_task = given

    async def make_it_pass(self, sandbox: Any) -> None:
        await set_up(self.given_task, sandbox, solved=True)

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await set_up(self.given_task, sandbox)  # type: ignore[arg-type]
