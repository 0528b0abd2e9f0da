"""One episode of an agent in a real folder, with a scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.testing import builders, played
from ale.testing.fakes import FolderSandbox
from ale.testing.played import Played
from ale.types import Task
from ale_agent_attempts.plugin import ale_agents

ADD = "assert add(1, 2) == 3"


def _add_task(**python: Any) -> Task:
    about = {"visible_tests": [ADD], **python}
    return builders.task(goal="Add two numbers.", metadata={"python": about})


@pytest.fixture
def add_task() -> Callable[..., Task]:
    """Makes a task that asks for a function ``add``; arguments are entries of its metadata."""
    return _add_task


Play = Callable[..., Awaitable[Played]]


@pytest_asyncio.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    """Play the answers; keyword arguments are options, or `agent`, `task`, `limits`."""
    async with AsyncExitStack() as stack:

        async def run(
            *answers: Any,
            agent: str = "code-attempts",
            task: Task | None = None,
            limits: Mapping[str, Any] | None = None,
            **options: Any,
        ) -> Played:
            component = next(one for one in ale_agents() if one.name == agent)
            assert component.options is not None
            made = component.build(component.options(**options), BuildContext())
            (tmp_path / "work").mkdir(exist_ok=True)
            sandbox = FolderSandbox(tmp_path / "work")
            stack.push_async_callback(sandbox.close)
            return await played.play(
                made, sandbox, answers, task=task or _add_task(), tools=False, limits=limits
            )

        yield run
