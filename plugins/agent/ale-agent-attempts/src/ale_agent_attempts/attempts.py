"""The agent that asks for code until its visible tests pass."""

from collections.abc import Callable, Sequence

from ale.agents import BadCallError, EpisodeLoop
from ale.errors import AleError
from ale.protocols import AgentContext
from ale.types import Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_attempts.options import AttemptsOptions
from ale_agent_attempts.problem import Problem, fill, first_messages
from ale_agent_attempts.testing import Tested, run_tests
from ale_answers import code

ATTEMPT = "attempt"
"""The tool that observations of attempts name."""


class AttemptsAgent:
    """Each answer is an attempt: its code is run with the visible tests, and what they say shown.

    Args:
        monotonic: seconds from an arbitrary start; all durations and the time limit are by it.
    """

    def __init__(self, options: AttemptsOptions, *, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic

    @property
    def limits(self) -> Limits:
        """As in the options."""
        options = self._options
        return Limits(
            max_turns=options.max_attempts,
            tool_timeout_s=options.tool_timeout_s,
            time_limit_s=options.time_limit_s,
            context_max_tokens=options.context_max_tokens,
        )

    async def run(self, context: AgentContext) -> Stop:
        """Ask until the visible tests pass, or to a limit.

        Raises:
            AleError: the task is none about Python.
        """
        problem = Problem.of(context.task)
        if problem is None:
            raise AleError(
                f"task '{context.task.id}' has no metadata.python, whose tests 'code-attempts' "
                "runs; 'single-shot' answers any task"
            )
        return await _Episode(self._options, problem, context, monotonic=self._monotonic).run()


class _Episode(EpisodeLoop):
    def __init__(
        self,
        options: AttemptsOptions,
        problem: Problem,
        context: AgentContext,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._problem = problem
        super().__init__(context, monotonic=monotonic)

    def head(self) -> tuple[Message, ...]:
        """As the options say."""
        options = self._options
        return first_messages(
            options.system_prompt, options.prompt, self.context.task, self._problem
        )

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """One attempt, with the code as its arguments: empty where there is none.

        A model that calls tools has invented them; each such call is answered.
        """
        message = turn.completion.message
        if message.tool_calls:
            return message.tool_calls
        found = code(message.content)
        return (
            ToolCall(
                id=f"{ATTEMPT}_{self.budget.turns}",
                name=ATTEMPT,
                arguments="" if found is None else found.text,
            ),
        )

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Run the code with the visible tests; the episode ends if all of them pass."""
        if not self._is_attempt(call):
            raise BadCallError(f"there are no tools. {self._options.no_code_prompt}")
        observation = Observation(call_id=call.id, tool=call.name, content="", role="user")
        if not call.arguments:
            return replace(observation, content=self._options.no_code_prompt, error="no code")
        tested = await run_tests(
            self.context.sandbox,
            self._options.python,
            call.arguments,
            self._problem,
            timeout_s=timeout_s,
            max_output_bytes=self._options.max_output_bytes,
        )
        if tested.error is None:
            self.stop = Stop(reason="finished", detail=tested.verdict)
        return replace(
            observation,
            content=self._feedback(tested, timeout_s),
            error=tested.error,
            exit_code=tested.result.exit_code,
            timed_out=tested.result.timed_out,
            truncated=tested.result.truncated,
        )

    def _feedback(self, tested: Tested, timeout_s: float | None) -> str:
        if tested.error is None:
            return tested.verdict
        if tested.result.timed_out:
            seconds = f"{timeout_s or 0.0:.4g}"
            return fill(self._options.timeout_prompt, seconds=seconds, output=tested.output)
        return fill(self._options.failed_prompt, output=tested.output)

    def not_run(self, call: ToolCall, why: str) -> Observation:
        """As the user's, where it is an attempt."""
        observation = super().not_run(call, why)
        return replace(observation, role="user") if self._is_attempt(call) else observation

    def _is_attempt(self, call: ToolCall) -> bool:
        return (call.name, call.id) == (ATTEMPT, f"{ATTEMPT}_{self.budget.turns}")
