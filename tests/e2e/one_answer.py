"""An agent that asks the model once, as a plugin file."""

from ale.plugin import Component, hookimpl
from ale.protocols import Agent, AgentContext
from ale.types import CompletionRequest, Limits, Message, Stop, Turn


class OneAnswer:
    limits = Limits()

    async def run(self, context: AgentContext) -> Stop:
        prompt = (Message(role="user", content=context.task.goal),)
        completion = await context.llm.complete(
            CompletionRequest(
                messages=prompt, conversation=context.conversation, turn=0, fresh_context=True
            )
        )
        context.recorder.append(Turn(prompt=prompt, fresh_context=True, completion=completion))
        return Stop(reason="finished")


@hookimpl
def ale_agents() -> list[Component[None, Agent]]:
    return [Component("one-answer", None, lambda o, c: OneAnswer(), summary="Answers once.")]
