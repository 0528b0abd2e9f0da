"""One episode of an agent in a real folder, with a scripted model."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.protocols import Agent, AgentContext
from ale.testing import builders
from ale.testing.agent import Answer
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder
from ale.types import Observation, Stop, Task, Trajectory, Turn, replace


@frozen(kw_only=True)
class Played:
    """The result of an episode."""

    stop: Stop
    llm: FakeLLM
    folder: Path
    """The workspace."""
    turns: Sequence[Turn]

    @property
    def observations(self) -> list[Observation]:
        """Those of all turns, in order."""
        return [o for turn in self.turns for o in turn.observations]

    @property
    def trajectory(self) -> Trajectory:
        """The recorded trajectory."""
        return Trajectory(turns=tuple(self.turns), stop=self.stop)

    def prompt_of(self, turn: int) -> str:
        """The last message of a request."""
        return self.llm.requests[turn].messages[-1].content


async def play(
    agent: Agent,
    sandbox: FolderSandbox,
    answers: Iterable[Answer],
    *,
    task: Task | None = None,
    tools: bool = True,
    limits: Mapping[str, Any] | None = None,
) -> Played:
    """Run `agent`; `answers` are the model's.

    Args:
        tools: the model accepts tools.
        limits: fields of `Limits` that differ from the agent's own.
    """
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
    return Played(stop=stop, llm=llm, folder=Path(sandbox.workdir), turns=recorder.turns)
