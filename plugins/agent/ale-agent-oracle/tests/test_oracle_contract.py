"""Both agents keep the contract."""

from collections.abc import Callable, Sequence

import pytest

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import builders
from ale.testing.agent import AgentContract
from ale.types import Completion, Task
from ale_agent_oracle.options import OracleOptions
from ale_agent_oracle.plugin import ale_agents


class TestOracle(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        oracle = next(c for c in ale_agents() if c.name == "oracle")
        return oracle.build(OracleOptions(), BuildContext())

    @pytest.fixture
    def make_task(self) -> Callable[[Sequence[str]], Task]:
        return lambda commands: builders.task(solution=tuple(commands))

    @pytest.fixture
    def ending(self) -> Completion | None:
        return None

    @pytest.fixture
    def uses_model(self) -> bool:
        return False


@pytest.mark.parametrize("name", ["noop", "echo"])
class TestNoModel(AgentContract):
    @pytest.fixture
    def agent(self, name: str) -> Agent:
        component = next(c for c in ale_agents() if c.name == name)
        return component.build(None, BuildContext())

    @pytest.fixture
    def uses_model(self) -> bool:
        return False

    @pytest.fixture
    def acts(self) -> bool:
        return False
