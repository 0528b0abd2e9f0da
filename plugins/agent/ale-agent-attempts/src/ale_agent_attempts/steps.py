"""The agent that thinks in ``<step>`` tags and answers in an ``<answer>`` tag."""

import re
from collections.abc import Sequence

from ale.agents import BadCallError
from ale.plugin import BuildContext
from ale.types import Limits, Observation, Stop, ToolCall, Turn
from ale_agent_attempts.options import StepsOptions
from ale_agent_attempts.single_shot import SingleShotEpisode, TextAgent

NO_ANSWER_PROMPT = "There is no answer yet. Write it as <answer>...</answer>."
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class StepsEpisode(SingleShotEpisode[StepsOptions]):
    """Asks for steps and an answer in tags, and asks again where there is no answer.

    The chunker ``step-tags`` makes a chunk of each step.
    """

    own = "reminder"

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """None of an answer in its tag; a reminder of one without; a model invents all others."""
        message = turn.completion.message
        if message.tool_calls or _ANSWER.search(message.content):
            return message.tool_calls
        return (self.own_call(),)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Say what is missing."""
        if not self.is_own(call):
            raise BadCallError(f"there are no tools. {NO_ANSWER_PROMPT}")
        return Observation(
            call_id=call.id,
            tool=call.name,
            content=NO_ANSWER_PROMPT,
            role="user",
            error="no answer",
        )

    def observed(self, turn: Turn) -> None:
        """End with the text of the answer, or continue."""
        super().observed(turn)
        answer = _ANSWER.search(turn.completion.message.content)
        if answer and self.stop is not None and self.stop.reason == "finished":
            self.stop = Stop(reason="finished", detail=answer[1].strip())


def steps(options: StepsOptions, context: BuildContext) -> TextAgent:
    """The agent ``steps``."""
    limits = Limits(max_turns=options.max_turns, time_limit_s=options.time_limit_s)
    return TextAgent(limits, lambda given: StepsEpisode(options, given, context.monotonic))
