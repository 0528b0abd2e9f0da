"""The agent keeps the contract, with tool calls of the provider and with calls in the text."""

import json
from collections.abc import Callable

import pytest

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import builders
from ale.testing.agent import AgentContract
from ale.types import Completion
from ale_agent_iflow.options import IflowOptions
from ale_agent_iflow.plugin import ale_agents


def build(options: IflowOptions, context: BuildContext | None = None) -> Agent:
    return ale_agents()[0].build(options, context or BuildContext())


def text_call(name: str, **arguments: object) -> Completion:
    call = json.dumps({"name": name, "arguments": arguments})
    return builders.turn(f"Next:\n```tool\n{call}\n```\n").completion


class TestNative(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return build(IflowOptions())


class TestText(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return build(IflowOptions(tool_format="text"))

    @pytest.fixture
    def action(self) -> Callable[[str], Completion]:
        return lambda command: text_call("shell", command=command)

    @pytest.fixture
    def ending(self) -> Completion | None:
        return text_call("finish", summary="done")
