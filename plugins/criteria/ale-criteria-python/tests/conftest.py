"""A sandbox, and a quick way to grade an answer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Score
from ale_criteria_python.options import PythonTestsOptions
from ale_criteria_python.python_tests import PythonTests

Grade = Callable[..., Awaitable[Score]]


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[FolderSandbox]:
    sandbox = FolderSandbox()
    yield sandbox
    await sandbox.close()


@pytest.fixture
def grade(sandbox: FolderSandbox) -> Grade:
    """Grade a text as the whole answer."""

    async def grade(
        code: str, *tests: str | Sequence[str], goal: str = "Write code.", **options: Any
    ) -> Score:
        made = PythonTests(PythonTestsOptions(tests=tests, **options))
        trajectory = builders.trajectory(builders.turn(f"```python\n{code}\n```"))
        return await made.grade(builders.task(goal=goal), trajectory, sandbox)

    return grade
