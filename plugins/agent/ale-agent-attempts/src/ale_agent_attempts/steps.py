"""The agent that thinks in ``<step>`` tags and answers in an ``<answer>`` tag."""

import re
from collections.abc import Callable, Sequence

from ale.agents import BadCallError, EpisodeLoop
from ale.protocols import AgentContext
from ale.types import Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_attempts.options import StepsOptions
from ale_agent_attempts.problem import Problem, first_messages

REMINDER = "reminder"
"""The tool that observations of answers without an answer tag name."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class StepsAgent:
    """Asks for steps and an answer in tags, and asks again where there is no answer.

    The chunker ``step-tags`` makes a chunk of each step.

    Args:
        monotonic: seconds from an arbitrary start; the time limit is by it.
    """

    def __init__(self, options: StepsOptions, *, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic

    @property
    def limits(self) -> Limits:
        """As in the options."""
        return Limits(max_turns=self._options.max_turns, time_limit_s=self._options.time_limit_s)

    async def run(self, context: AgentContext) -> Stop:
        """Ask until there is an answer, or to a limit."""
        return await _Episode(self._options, context, monotonic=self._monotonic).run()


class _Episode(EpisodeLoop):
    def __init__(
        self, options: StepsOptions, context: AgentContext, *, monotonic: Callable[[], float]
    ) -> None:
        self._options = options
        super().__init__(context, monotonic=monotonic)

    def head(self) -> tuple[Message, ...]:
        """As the options say."""
        options, task = self._options, self.context.task
        return first_messages(options.system_prompt, options.prompt, task, Problem.of(task))

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """None of an answer in its tag; a reminder of one without; a model invents all others."""
        message = turn.completion.message
        if message.tool_calls or _ANSWER.search(message.content):
            return message.tool_calls
        return (ToolCall(id=f"{REMINDER}_{self.budget.turns}", name=REMINDER, arguments=""),)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Say what is missing."""
        if not self._is_reminder(call):
            raise BadCallError(f"there are no tools. {self._options.no_answer_prompt}")
        return Observation(
            call_id=call.id,
            tool=call.name,
            content=self._options.no_answer_prompt,
            role="user",
            error="no answer",
        )

    def observed(self, turn: Turn) -> None:
        """End with the text of the answer, or continue."""
        super().observed(turn)
        answer = _ANSWER.search(turn.completion.message.content)
        if answer and self.stop is not None and self.stop.reason == "finished":
            self.stop = Stop(reason="finished", detail=answer[1].strip())

    def not_run(self, call: ToolCall, why: str) -> Observation:
        """As the user's, where it is a reminder."""
        observation = super().not_run(call, why)
        return replace(observation, role="user") if self._is_reminder(call) else observation

    def _is_reminder(self, call: ToolCall) -> bool:
        return (call.name, call.id) == (REMINDER, f"{REMINDER}_{self.budget.turns}")
