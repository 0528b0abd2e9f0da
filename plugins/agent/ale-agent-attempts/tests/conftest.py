"""One episode of an agent in a real folder, with a scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from attrs import field, frozen

from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.testing import builders
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder
from ale.types import Observation, Stop, Task, Trajectory, Turn, replace
from ale_agent_attempts.plugin import ale_agents

ADD = "assert add(1, 2) == 3"


def _add_task(**python: Any) -> Task:
    about = {"visible_tests": [ADD], **python}
    return builders.task(goal="Add two numbers.", metadata={"python": about})


@pytest.fixture
def add_task() -> Callable[..., Task]:
    """Makes a task that asks for a function ``add``; arguments are entries of its metadata."""
    return _add_task


@frozen(kw_only=True)
class Played:
    stop: Stop
    llm: FakeLLM
    folder: Path
    turns: Sequence[Turn]
    sandbox: FolderSandbox = field(repr=False)

    @property
    def observations(self) -> list[Observation]:
        return [o for turn in self.turns for o in turn.observations]

    @property
    def trajectory(self) -> Trajectory:
        return Trajectory(turns=tuple(self.turns), stop=self.stop)

    def prompt_of(self, turn: int) -> str:
        """The last message of a request."""
        return self.llm.requests[turn].messages[-1].content


Play = Callable[..., Awaitable[Played]]


@pytest_asyncio.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    """Play the answers; keyword arguments are options, or `agent`, `task`, `limits`."""
    sandboxes = []

    async def run(
        *answers: Any,
        agent: str = "code-attempts",
        task: Task | None = None,
        limits: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Played:
        (tmp_path / "work").mkdir(exist_ok=True)
        sandbox = FolderSandbox(tmp_path / "work")
        sandboxes.append(sandbox)
        component = next(one for one in ale_agents() if one.name == agent)
        assert component.options is not None
        made = component.build(component.options(**options), BuildContext())
        llm, recorder = FakeLLM(answers, tools=False), ListRecorder()
        stop = await made.run(
            AgentContext(
                task=task or _add_task(),
                sandbox=sandbox,
                llm=llm,
                limits=replace(made.limits, **(limits or {})),
                conversation=builders.conversation(),
                recorder=recorder,
            )
        )
        return Played(
            stop=stop, llm=llm, folder=tmp_path / "work", turns=recorder.turns, sandbox=sandbox
        )

    yield run
    for sandbox in sandboxes:
        await sandbox.close()
