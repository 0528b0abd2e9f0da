"""One episode of the agent in a real git repository, with a scripted model."""

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from attrs import field, frozen

from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.testing import builders
from ale.testing.agent import answer
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder
from ale.types import Observation, Stop, Trajectory, Turn, replace
from ale_agent_swe.options import PlanPatchTestOptions
from ale_agent_swe.plugin import ale_agents

WRONG = "def add(a, b):\n    return a - b\n"


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
    def phases(self) -> list[tuple[str, str | None]]:
        """The tool and the error of each observation."""
        return [(o.tool, o.error) for o in self.observations]

    @property
    def trajectory(self) -> Trajectory:
        return Trajectory(turns=tuple(self.turns), stop=self.stop)

    def prompt_of(self, turn: int) -> str:
        """The last message of a request."""
        return self.llm.requests[turn].messages[-1].content


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
    sandboxes = []

    async def run(
        *answers: Any,
        tools: bool = False,
        limits: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Played:
        sandbox = FolderSandbox(repository)
        sandboxes.append(sandbox)
        agent = ale_agents()[0].build(PlanPatchTestOptions(**options), BuildContext())
        made = [answer(each) if isinstance(each, str) else each for each in answers]
        llm, recorder = FakeLLM(made, tools=tools), ListRecorder()
        stop = await agent.run(
            AgentContext(
                task=builders.task(goal="Mend add."),
                sandbox=sandbox,
                llm=llm,
                limits=replace(agent.limits, **(limits or {})),
                conversation=builders.conversation(),
                recorder=recorder,
            )
        )
        return Played(stop=stop, llm=llm, folder=repository, turns=recorder.turns, sandbox=sandbox)

    yield run
    for sandbox in sandboxes:
        await sandbox.close()
