"""The agent that says the goal again, for dry runs."""

from ale.protocols import AgentContext
from ale.types import Completion, Limits, Message, Stop, Turn


class EchoAgent:
    """Records the goal as its answer, and does nothing else: a dry run of everything around it."""

    @property
    def limits(self) -> Limits:
        """No limits, as it uses nothing up."""
        return Limits()

    async def run(self, context: AgentContext) -> Stop:
        """One turn, which no model has sampled."""
        asked = Message(role="user", content=context.task.goal)
        message = Message(role="assistant", content=context.task.goal)
        completion = Completion(message=message, model="echo")
        turn = Turn(prompt=(asked,), fresh_context=True, completion=completion)
        context.recorder.append(turn)
        return Stop(reason="finished", detail="dry run: the goal was said again")
