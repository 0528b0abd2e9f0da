"""The agent that asks for code until its visible tests pass."""

from collections.abc import Sequence

from ale.agents import BadCallError
from ale.errors import AleError
from ale.plugin import BuildContext
from ale.types import Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_attempts.options import AttemptsOptions
from ale_agent_attempts.problem import fill
from ale_agent_attempts.single_shot import SingleShotEpisode, TextAgent
from ale_agent_attempts.testing import Tested, run_tests
from ale_grading.answers import code

PATIENCE = 8.0
"""Seconds by the clock for each of CPU time, as other work may be in the way."""
TIMEOUT_PROMPT = (
    "The code was stopped after {seconds} seconds. It printed:\n\n{output}\n\n"
    "Answer with faster code, whole, in a block that begins with ```python."
)


class AttemptsEpisode(SingleShotEpisode[AttemptsOptions]):
    """Runs the code of each answer with the visible tests, and shows what they say."""

    own = "attempt"

    def head(self) -> tuple[Message, ...]:
        """As the options say.

        Raises:
            AleError: the task is none about Python.
        """
        if self.context.task.metadata.get("python") is None:
            raise AleError(
                f"task '{self.context.task.id}' has no metadata.python, whose tests "
                "'code-attempts' runs; 'single-shot' answers any task"
            )
        return super().head()

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """One attempt, with the code as its arguments: empty where there is none.

        A model that calls tools has invented them; each such call is answered.
        """
        message = turn.completion.message
        if message.tool_calls:
            return message.tool_calls
        found = code(message.content)
        return (self.own_call("" if found is None else found.text),)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Run the code with the visible tests; the episode ends if all of them pass."""
        if not self.is_own(call):
            raise BadCallError(f"there are no tools. {self.options.no_code_prompt}")
        observation = Observation(call_id=call.id, tool=call.name, content="", role="user")
        if not call.arguments:
            return replace(observation, content=self.options.no_code_prompt, error="no code")
        tested = await run_tests(
            self.context.sandbox,
            self.options.python,
            call.arguments,
            self.problem,
            cpu_s=self.options.tool_timeout_s,
            timeout_s=timeout_s,
            max_output_bytes=self.options.max_output_bytes,
        )
        if tested.error is None:
            self.stop = Stop(reason="finished", detail=tested.verdict)
        return replace(
            observation,
            content=self._feedback(tested),
            error=tested.error,
            exit_code=tested.result.exit_code,
            timed_out=tested.timed_out,
            truncated=tested.result.truncated,
        )

    def _feedback(self, tested: Tested) -> str:
        if tested.error is None:
            return tested.verdict
        if tested.timed_out:
            seconds = f"{self.options.tool_timeout_s or 0.0:.4g}"
            return fill(TIMEOUT_PROMPT, seconds=seconds, output=tested.output)
        return fill(self.options.failed_prompt, output=tested.output)


def code_attempts(options: AttemptsOptions, context: BuildContext) -> TextAgent:
    """The agent ``code-attempts``."""
    cpu_s = options.tool_timeout_s
    limits = Limits(
        max_turns=options.max_attempts,
        tool_timeout_s=None if cpu_s is None else PATIENCE * cpu_s,
        time_limit_s=options.time_limit_s,
        context_max_tokens=options.context_max_tokens,
    )
    return TextAgent(
        limits,
        lambda given: AttemptsEpisode(options, given, context.monotonic),
        uses_sandbox=True,
    )
