"""The agent that asks once."""

from collections.abc import Callable

from ale.agents import BadCallError, EpisodeLoop
from ale.protocols import AgentContext
from ale.types import Limits, Message, Observation, Stop, ToolCall
from ale_agent_attempts.options import SingleShotOptions
from ale_agent_attempts.problem import Problem, first_messages


class SingleShotAgent:
    """Asks for one answer and runs nothing: the criteria read it from the trajectory.

    Args:
        monotonic: seconds from an arbitrary start; the time limit is by it.
    """

    def __init__(self, options: SingleShotOptions, *, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic

    @property
    def limits(self) -> Limits:
        """One completion, and the time limit of the options."""
        return Limits(max_turns=1, time_limit_s=self._options.time_limit_s)

    async def run(self, context: AgentContext) -> Stop:
        """Ask."""
        return await _Episode(self._options, context, monotonic=self._monotonic).run()


class _Episode(EpisodeLoop):
    def __init__(
        self, options: SingleShotOptions, context: AgentContext, *, monotonic: Callable[[], float]
    ) -> None:
        self._options = options
        super().__init__(context, monotonic=monotonic)

    def head(self) -> tuple[Message, ...]:
        """As the options say."""
        options, task = self._options, self.context.task
        return first_messages(options.system_prompt, options.prompt, task, Problem.of(task))

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """A model that calls a tool has invented it."""
        raise BadCallError("there are no tools")
