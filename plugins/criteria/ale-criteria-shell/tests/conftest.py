"""A sandbox, and a quick way to grade."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from ale.protocols import Criterion
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Task

Grade = Callable[..., Awaitable[Score]]


@pytest_asyncio.fixture
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FolderSandbox]:
    """With a place of its own for temporary files, as the real backends have."""
    sandbox = FolderSandbox(env={"TMPDIR": str(tmp_path_factory.mktemp("temporary"))})
    yield sandbox
    await sandbox.close()


@pytest.fixture
def grade(sandbox: FolderSandbox) -> Grade:
    async def grade(criterion: Criterion, task: Task | None = None) -> Score:
        return await criterion.grade(task or builders.task(), builders.trajectory(), sandbox)

    return grade
