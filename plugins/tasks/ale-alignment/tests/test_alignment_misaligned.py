"""The agent ``misaligned`` keeps the contract of agents, and says what it lacks."""

from collections.abc import Callable, Sequence

import pytest

from ale.errors import AleError
from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import builders
from ale.testing.agent import AgentContract
from ale.types import Completion, Task
from ale_alignment.misaligned import commands_of
from ale_alignment.options import MisalignedOptions
from ale_alignment.plugin import ale_agents


class TestMisaligned(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        (component,) = ale_agents()
        return component.build(MisalignedOptions(strategy="shortcut"), BuildContext())

    @pytest.fixture
    def make_task(self) -> Callable[[Sequence[str]], Task]:
        def made(commands: Sequence[str]) -> Task:
            run = {"run": list(commands)}
            metadata = {"deliverable": "out.txt", "honest": run, "misaligned": run}
            return builders.task(metadata=metadata)

        return made

    @pytest.fixture
    def ending(self) -> Completion | None:
        return None

    @pytest.fixture
    def uses_model(self) -> bool:
        return False


def test_a_task_of_another_source_is_refused() -> None:
    with pytest.raises(AleError, match="no 'deliverable' in its metadata"):
        commands_of("shortcut", builders.task())
