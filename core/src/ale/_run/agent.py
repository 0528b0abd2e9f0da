"""Run an agent on a task: its model, its limits, and the model of an expert-guided start."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ale._run.timeouts import OverdueError, Supervisor
from ale.errors import AleError, ContextLengthError, LLMError
from ale.middleware import WrappedLLM
from ale.protocols import (
    LLM,
    Agent,
    AgentContext,
    Expert,
    Policy,
    RecordedExpert,
    Restoring,
    Start,
)
from ale.types import (
    Completion,
    CompletionRequest,
    Constraints,
    Job,
    Limits,
    LLMCapabilities,
    Message,
    Stop,
    replace,
)


class ExpertGuidedLLM(WrappedLLM):
    """Answers with the expert's messages until the expert has none left, then with the policy's.

    Args:
        start: a start with an expert, or with an expert's next action.
        expert_finished: called once, between the expert's last turn and the policy's first.
    """

    def __init__(
        self,
        policy: Policy,
        start: Start,
        expert_finished: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(policy)
        self.expert_next: Mapping[str, Any] | None = None
        """The expert's next action, once the policy has taken over: see `Start.next_action`."""
        self._policy = policy
        self._expert = None if start.expert is None else start.expert()
        self._next_action = None if start.next_action is None else start.next_action()
        self._expert_finished = expert_finished

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer.

        Raises:
            ReplayError: the observations differ from those that the expert saw, or the sandbox is
                in another state.
            LLMError: as for `Policy.complete`.
        """
        if self._expert is not None:
            answer = self._expert.answer(request)
            if answer is not None:
                return await self._forced(self._expert, request, answer)
            self._expert = None
            if self._expert_finished is not None:
                await self._expert_finished()
        if self._next_action is not None:
            answer, self._next_action = self._next_action.answer(request), None
            if answer is not None:
                self.expert_next = await self._tokens_of(request, answer)
        return await self._policy.complete(request)

    async def _forced(
        self, expert: Expert, request: CompletionRequest, answer: Message
    ) -> Completion:
        forced = await self._policy.force(request, answer)
        if isinstance(expert, RecordedExpert):
            return replace(forced, finish_reason=expert.finish_reason(request))
        return forced

    async def _tokens_of(self, request: CompletionRequest, answer: Message) -> Mapping[str, Any]:
        try:
            trace = (await self._policy.force(request, answer)).tokens
        except LLMError as error:
            # Only imitation needs this: the policy's own answer may fit even if this one doesn't.
            return {"left_out": str(error)}
        assert trace is not None, "a policy is exact to the token"
        parts = ("output_ids", "logprobs", "policy_versions")
        return {"turn": request.turn, **{name: list(getattr(trace, name)) for name in parts}}


GRACE_S = 10.0
"""Between an agent's time limit and its cancellation."""


async def run_agent(agent: Agent, context: AgentContext, supervisor: Supervisor) -> Stop:
    """Let the agent work until it ends, or cancel it `GRACE_S` seconds after its time limit.

    Raises:
        AleError: it returned something other than a `Stop`.
        Exception: whatever the agent raises.
    """
    limit = context.limits.time_limit_s
    cutoff = None if limit is None else limit + GRACE_S
    try:
        stop = await supervisor.run(agent.run(context), cutoff, "the agent")
    except OverdueError as error:
        return Stop(reason="time_limit", detail=f"cut off: {error}")
    if not isinstance(stop, Stop):
        raise AleError(f"the agent returned {stop!r} instead of a Stop")
    return stop


def check_answered(stop: Stop) -> None:
    """For an agent that has a model but recorded no turn: raise if the model made it stop.

    Raises:
        ContextLengthError: the first request was too long.
        LLMError: no answer came within the time limit.
    """
    if stop.reason == "context":
        raise ContextLengthError(f"the first request is too long for the model: {stop.detail}")
    if stop.reason == "time_limit":
        raise LLMError(f"no answer of the model within the agent's time limit: {stop.detail}")


def model_for(llm: LLM | None, job: Job, start: Start, restoring: Restoring | None) -> LLM:
    """The model as the agent sees it: expert-guided if the episode's start has an expert."""
    if llm is None:
        return _NoLLM()
    if job.temperature is not None:
        return _AtTemperature(llm, job.temperature)
    if start.expert is None and start.next_action is None:
        return llm
    assert isinstance(llm, Policy)  # checked when the parts were built
    expert_finished = None if restoring is None else restoring.expert_finished
    return ExpertGuidedLLM(llm, start, expert_finished)


class _AtTemperature(WrappedLLM):
    """A model that samples at a temperature that the run chooses."""

    def __init__(self, llm: LLM, temperature: float) -> None:
        super().__init__(llm)
        self._temperature = temperature

    async def complete(self, request: CompletionRequest) -> Completion:
        sampling = replace(request.sampling, temperature=self._temperature)
        return await self.llm.complete(replace(request, sampling=sampling))


class _NoLLM:
    """The model if the config names none: asking it raises an error that says so."""

    capabilities: LLMCapabilities = LLMCapabilities(tools=False)

    async def complete(self, request: CompletionRequest) -> Completion:
        raise AleError("the agent asked a model, but the config has no section 'llm'")

    async def aclose(self) -> None: ...


def effective_limits(limits: Limits, constraints: Constraints) -> Limits:
    """The agent's and the task's limits, the stricter of each."""
    stricter = {}
    for name in ("time_limit_s", "max_steps", "max_turns"):
        both = (getattr(limits, name), getattr(constraints, name))
        stricter[name] = min((limit for limit in both if limit is not None), default=None)
    return replace(limits, **stricter)
