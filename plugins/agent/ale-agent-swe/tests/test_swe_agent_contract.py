"""The agent keeps the contract, by tool calls and by text."""

from collections.abc import Callable

import pytest

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing.agent import AgentContract, answer
from ale.types import Completion
from ale_agent_swe.options import PlanPatchTestOptions
from ale_agent_swe.plugin import ale_agents


def agent_with(tool_format: str) -> Agent:
    options = PlanPatchTestOptions(tool_format=tool_format, max_turns=80)  # type: ignore[arg-type]
    return ale_agents()[0].build(options, BuildContext())


class TestByToolCalls(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return agent_with("native")


class TestByText(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return agent_with("text")

    @pytest.fixture
    def action(self) -> Callable[[str], Completion]:
        return lambda command: answer(f"I look:\n```sh\n{command}\n```\n")

    @pytest.fixture
    def ending(self) -> Completion | None:
        return answer("```finish\nNothing to do.\n```")
