"""Both agents keep the contract; an attempt that runs a command is code that calls a shell."""

from collections.abc import Callable, Sequence

import pytest

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import builders
from ale.testing.agent import AgentAttempts, AgentContract, answer
from ale.types import Completion, Task
from ale_agent_attempts.options import AttemptsOptions
from ale_agent_attempts.plugin import ale_agents


def test_the_package_registers_these_agents() -> None:
    assert [component.name for component in ale_agents()] == [
        "code-attempts",
        "single-shot",
        "steps",
    ]


CODE = """
import os

# Its output is not the test's own, which a server would keep open.
status = os.system({command!r})
print(open(".output").read())
assert status == 0
over = {passes}
"""


def running(command: str, *, passes: bool) -> Completion:
    """An answer whose code runs a command, and says whether its test then passes."""
    code = CODE.format(command=f"exec > .output 2>&1; {command}", passes=passes)
    return answer(f"Let me try:\n```python\n{code}\n```\n")


class TestCodeAttempts(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        component = ale_agents()[0]
        return component.build(AttemptsOptions(max_attempts=80), BuildContext())

    @pytest.fixture
    def action(self) -> Callable[[str], Completion]:
        return lambda command: running(command, passes=False)

    @pytest.fixture
    def ending(self) -> Completion | None:
        return running("true", passes=True)

    @pytest.fixture
    def make_task(self) -> Callable[[Sequence[str]], Task]:
        metadata = {"python": {"visible_tests": ["assert over"]}}
        return lambda commands: builders.task(metadata=metadata)

    async def test_a_failing_command_is_an_error_and_not_the_end(
        self, attempts: AgentAttempts
    ) -> None:
        """Unlike a tool call, an attempt without an error is the last one."""
        attempt = attempts("false", "echo on > file")
        assert (await attempt.run()).reason == "finished"
        errors = [turn.observations[0].error for turn in attempt.recorder.turns]
        assert errors == ["0 of 1 tests passed", "0 of 1 tests passed", None]
        assert attempt.lines("file") == ["on"]
