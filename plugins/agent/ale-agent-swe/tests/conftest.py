"""One episode of the agent in a real git repository, with a scripted model."""

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.testing import builders, played
from ale.testing.agent import answer
from ale.testing.fakes import FolderSandbox
from ale.testing.played import Played
from ale_agent_swe.options import PlanPatchTestOptions
from ale_agent_swe.plugin import ale_agents

WRONG = "def add(a, b):\n    return a - b\n"


Play = Callable[..., Awaitable[Played]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A package with a bug and a test, committed."""
    folder = tmp_path / "work"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "adding.py").write_text(WRONG)
    (folder / "check.sh").write_text(
        "python3 -B -c 'from pkg.adding import add; assert add(1, 2) == 3, add(1, 2)'\n"
    )
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "Start")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest_asyncio.fixture
async def play(repository: Path) -> AsyncIterator[Play]:
    """Play the answers; keyword arguments are options, or `tools`, `limits`."""
    async with AsyncExitStack() as stack:

        async def run(
            *answers: Any,
            tools: bool = False,
            limits: Mapping[str, Any] | None = None,
            **options: Any,
        ) -> Played:
            agent = ale_agents()[0].build(PlanPatchTestOptions(**options), BuildContext())
            sandbox = FolderSandbox(repository)
            stack.push_async_callback(sandbox.close)
            made = [answer(each) if isinstance(each, str) else each for each in answers]
            task = builders.task(goal="Mend add.")
            return await played.play(agent, sandbox, made, task=task, tools=tools, limits=limits)

        yield run
