"""The contract kits: of the source, over its test data; of the criterion, in a folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.protocols import Criterion, Sandbox, TaskSource
from ale.testing.criterion import CriterionContract
from ale.testing.fakes import FolderSandbox
from ale.testing.tasks import TaskSourceContract
from ale_tasks_harbor.criterion import TaskTests
from ale_tasks_harbor.options import HarborOptions, TaskTestsOptions
from ale_tasks_harbor.plugin import ale_task_sources

from .conftest import BENCH, BESIDE, DATA, HARBOR, Write


class TestHarborFolders(TaskSourceContract):
    folder = "harbor"

    @pytest.fixture
    def source(self) -> TaskSource:
        return ale_task_sources()[0].build(
            HarborOptions(path=DATA / self.folder, invalid="error"), BuildContext()
        )

    @pytest.fixture
    def broken_source(self, write: Write, tmp_path: Path) -> TaskSource:
        write(
            "one",
            {**HARBOR, "task.toml": "[environment]\ncpus = 'many'\n[agent]\ntimeout_sec = 'me'\n"},
        )
        write("two", {**BENCH, "task.yaml": "instruction: Do it.\nparser_name: junit\n"})
        return ale_task_sources()[0].build(
            HarborOptions(path=tmp_path / "tasks", invalid="error"), BuildContext()
        )


class TestTerminalBenchFolders(TestHarborFolders):
    folder = "terminal-bench"


_TEST = """\
#!/bin/sh
logs="$(dirname "$0")/../logs/verifier"
if grep -q right out.txt 2>/dev/null; then echo 1 >"$logs/reward.txt"; exit 0; fi
echo 'out.txt is not right'
echo 0 >"$logs/reward.txt"
"""


async def beside(folder: Path) -> AsyncIterator[FolderSandbox]:
    (folder / "workspace").mkdir(parents=True)
    sandbox = FolderSandbox(folder / "workspace")
    yield sandbox
    await sandbox.close()


class TestTaskTests(CriterionContract):
    @pytest_asyncio.fixture
    async def sandbox(self, tmp_path: Path) -> AsyncIterator[Sandbox]:
        async for sandbox in beside(tmp_path / "one"):
            yield sandbox

    @pytest_asyncio.fixture
    async def other_sandbox(self, tmp_path: Path) -> AsyncIterator[Sandbox]:
        async for sandbox in beside(tmp_path / "two"):
            yield sandbox

    @pytest.fixture
    def criterion(self, tmp_path: Path) -> Criterion:
        tests = tmp_path / "of-the-task"
        tests.mkdir()
        (tests / "test.sh").write_text(_TEST)
        options = TaskTestsOptions(tests=(str(tests),), script="test.sh")
        return TaskTests(options, BuildContext(run_directory=tmp_path / "run"), places=BESIDE)

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("out.txt", b"this is right\n")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("out.txt", b"this is wrong\n")
