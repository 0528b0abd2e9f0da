"""A policy that is led by an expert: what the agent is shown of the expert's answers."""

import pytest

from ale._run.agent import ExpertGuidedLLM
from ale.protocols import Start
from ale.testing.builders import conversation
from ale.testing.fakes import FakePolicy
from ale.types import CompletionRequest, FinishReason, Message


class Given:
    """One answer, without a record of how it ended."""

    def answer(self, request: CompletionRequest) -> Message | None:
        return Message(role="assistant", content="given") if request.turn == 0 else None


class Recorded(Given):
    """One answer that was cut off."""

    def finish_reason(self, request: CompletionRequest) -> FinishReason:
        return "length"


@pytest.mark.parametrize(("expert", "reason"), [(Given, "stop"), (Recorded, "length")])
async def test_a_recorded_answer_ends_as_it_was_recorded(expert: type, reason: str) -> None:
    own = Message(role="assistant", content="own")
    start = Start(task_id="demo", rollouts=1, name="p1of2", expert=expert)
    llm = ExpertGuidedLLM(FakePolicy(lambda request: own), start)
    first = await llm.complete(CompletionRequest(messages=(), conversation=conversation(), turn=0))
    assert (first.message.content, first.finish_reason) == ("given", reason)
    after = await llm.complete(CompletionRequest(messages=(), conversation=conversation(), turn=1))
    assert (after.message.content, after.finish_reason) == ("own", "stop")
