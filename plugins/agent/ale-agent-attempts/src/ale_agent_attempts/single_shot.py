"""The agent that asks once, and what the others here have in common with it."""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from attrs import frozen

from ale.agents import BadCallError, EpisodeLoop
from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.types import Limits, Message, Observation, Stop, ToolCall, replace
from ale_agent_attempts.options import AttemptsOptions, SingleShotOptions, StepsOptions
from ale_agent_attempts.problem import Problem, first_messages

OptionsT = TypeVar("OptionsT", bound=SingleShotOptions | StepsOptions | AttemptsOptions)


@frozen
class TextAgent:
    """Has no tools: runs one episode of a class for each task."""

    limits: Limits
    """As in the options."""
    episode: Callable[[AgentContext], EpisodeLoop]
    uses_sandbox: bool = False
    """Is something run in it? See `ale.protocols.SparesSandbox`."""

    async def run(self, context: AgentContext) -> Stop:
        """Ask until there is an answer, or to a limit."""
        return await self.episode(context).run()


class SingleShotEpisode(EpisodeLoop, Generic[OptionsT]):
    """Asks for one answer and runs nothing: the criteria read it from the trajectory.

    Args:
        monotonic: seconds from an arbitrary start; all durations and the time limit are by it.
    """

    own: ClassVar[str] = ""
    """The tool that observations of the agent's own calls name: those that the model has not made,
    and whose observations are the user's."""

    def __init__(
        self, options: OptionsT, context: AgentContext, monotonic: Callable[[], float]
    ) -> None:
        self.options = options
        self.problem = Problem.of(context.task)
        super().__init__(context, monotonic=monotonic)

    def head(self) -> tuple[Message, ...]:
        """As the options say."""
        options, goal = self.options, self.context.task.goal
        return first_messages(options.system_prompt, options.prompt, goal, self.problem)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """A model that calls a tool has invented it."""
        raise BadCallError("there are no tools")

    def not_run(self, call: ToolCall, why: str) -> Observation:
        """As the user's, where the call is the agent's own."""
        observation = super().not_run(call, why)
        return replace(observation, role="user") if self.is_own(call) else observation

    def own_call(self, arguments: str = "") -> ToolCall:
        """The agent's own call of this turn."""
        return ToolCall(id=self._own_id, name=self.own, arguments=arguments)

    def is_own(self, call: ToolCall) -> bool:
        """Is it the agent's own call of this turn?"""
        return bool(self.own) and (call.name, call.id) == (self.own, self._own_id)

    @property
    def _own_id(self) -> str:
        return f"{self.own}_{self.budget.turns}"


def single_shot(options: SingleShotOptions, context: BuildContext) -> TextAgent:
    """The agent ``single-shot``."""
    limits = Limits(max_turns=1, time_limit_s=options.time_limit_s)
    return TextAgent(limits, lambda given: SingleShotEpisode(options, given, context.monotonic))
