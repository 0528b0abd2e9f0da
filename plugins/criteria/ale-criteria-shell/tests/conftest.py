"""A sandbox, and a quick way to grade."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.protocols import Criterion
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import ExecResult, Score, Task

Grade = Callable[..., Awaitable[Score]]


class OwnTemporary(FolderSandbox):
    """Has a place of its own for temporary files, as the real backends do."""

    def __init__(self, temporary: Path) -> None:
        super().__init__()
        self.temporary = temporary

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> ExecResult:
        variables = {"TMPDIR": str(self.temporary), **(env or {})}
        return await super().exec(command, env=variables, **arguments)


@pytest_asyncio.fixture
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OwnTemporary]:
    sandbox = OwnTemporary(tmp_path_factory.mktemp("temporary"))
    yield sandbox
    await sandbox.close()


@pytest.fixture
def grade(sandbox: FolderSandbox) -> Grade:
    async def grade(criterion: Criterion, task: Task | None = None) -> Score:
        return await criterion.grade(task or builders.task(), builders.trajectory(), sandbox)

    return grade
