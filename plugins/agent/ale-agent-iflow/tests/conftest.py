"""One episode of the agent in a real folder, with a scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import played
from ale.testing.fakes import FolderSandbox
from ale.testing.played import Played
from ale.types import Task
from ale_agent_iflow.options import IflowOptions
from ale_agent_iflow.plugin import ale_agents


def build(options: IflowOptions | None = None, context: BuildContext | None = None) -> Agent:
    return ale_agents()[0].build(options or IflowOptions(), context or BuildContext())


Play = Callable[..., Awaitable[Played]]


@pytest_asyncio.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    """Play the answers; keyword arguments are options, or `task`, `context`, `tools`, `limits`."""
    async with AsyncExitStack() as stack:

        async def run(
            *answers: Any,
            task: Task | None = None,
            context: BuildContext | None = None,
            tools: bool = True,
            limits: dict[str, Any] | None = None,
            **options: Any,
        ) -> Played:
            agent = build(IflowOptions(**options), context)
            (tmp_path / "work").mkdir(exist_ok=True)
            sandbox = FolderSandbox(tmp_path / "work")
            stack.push_async_callback(sandbox.close)
            return await played.play(agent, sandbox, answers, task=task, tools=tools, limits=limits)

        yield run
