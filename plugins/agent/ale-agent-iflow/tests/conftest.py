"""One episode of the agent in a real folder, with a scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest_asyncio
from attrs import field, frozen

from ale.plugin import BuildContext
from ale.protocols import Agent, AgentContext
from ale.testing import builders
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder
from ale.types import Observation, Stop, Task, Trajectory, Turn, replace
from ale_agent_iflow.options import IflowOptions
from ale_agent_iflow.plugin import ale_agents


def build(options: IflowOptions | None = None, context: BuildContext | None = None) -> Agent:
    return ale_agents()[0].build(options or IflowOptions(), context or BuildContext())


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
    """Play the answers; keyword arguments are options, or `task`, `context`, `tools`, `limits`."""
    sandboxes = []

    async def run(
        *answers: Any,
        task: Task | None = None,
        context: BuildContext | None = None,
        tools: bool = True,
        limits: dict[str, Any] | None = None,
        **options: Any,
    ) -> Played:
        (tmp_path / "work").mkdir(exist_ok=True)
        sandbox = FolderSandbox(tmp_path / "work")
        sandboxes.append(sandbox)
        agent = build(IflowOptions(**options), context)
        llm, recorder = FakeLLM(answers, tools=tools), ListRecorder()
        stop = await agent.run(
            AgentContext(
                task=task or builders.task(),
                sandbox=sandbox,
                llm=llm,
                limits=replace(agent.limits, **(limits or {})),
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
