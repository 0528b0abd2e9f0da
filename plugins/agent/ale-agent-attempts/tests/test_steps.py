"""``steps`` thinks in tags and asks again where there is no answer."""

from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import builders
from ale.testing.agent import AgentContract, answer, call
from ale.types import Completion
from ale_agent_attempts.options import StepsOptions
from ale_agent_attempts.plugin import ale_agents

SOLVED = "<step>6 * 7</step> <step>is 42</step> <answer> 42 </answer>"


class TestSteps(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return ale_agents()[2].build(StepsOptions(max_turns=80), BuildContext())

    @pytest.fixture
    def ending(self) -> Completion | None:
        return answer(SOLVED)

    @pytest.fixture
    def acts(self) -> bool:
        return False


async def test_the_answer_ends_the_episode(play: Any) -> None:
    task = builders.task(goal="What is 6 times 7?")
    played = await play(answer(SOLVED), agent="steps", task=task)
    assert (played.stop.reason, played.stop.detail) == ("finished", "42")
    assert [message.role for message in played.llm.requests[0].messages] == ["system", "user"]
    assert played.observations == []


async def test_without_an_answer_it_is_asked_for_again(play: Any) -> None:
    played = await play(answer("<step>Hm.</step>"), answer(SOLVED), agent="steps")
    assert played.prompt_of(1).startswith("There is no answer yet.")
    assert [o.error for o in played.observations] == ["no answer"]
    assert played.stop.detail == "42"
    roles = [message.role for message in played.trajectory.messages()]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


async def test_it_ends_after_its_turns(play: Any) -> None:
    played = await play(*[answer("Hm.")] * 2, agent="steps", max_turns=2)
    assert (played.stop.reason, len(played.llm.requests)) == ("max_turns", 2)


async def test_a_call_that_the_model_invents_is_answered(play: Any) -> None:
    played = await play(call("shell", command="ls"), answer(SOLVED), agent="steps")
    assert "there are no tools" in played.observations[0].error
    assert played.stop.detail == "42"
