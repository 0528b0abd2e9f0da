"""Run an agent on a task, within its time limit."""

from ale._run.expert_guided import ExpertGuidedLLM
from ale._run.plan import EpisodePlan
from ale._run.record import EpisodeRecord
from ale._run.timeouts import OverdueError, Supervisor
from ale.errors import AleError, ContextLengthError, LLMError
from ale.middleware import WrappedLLM
from ale.protocols import LLM, Agent, AgentContext, Policy
from ale.types import (
    Completion,
    CompletionRequest,
    Constraints,
    Limits,
    LLMCapabilities,
    Stop,
    replace,
)


async def run_agent(
    agent: Agent, context: AgentContext, supervisor: Supervisor, grace_s: float
) -> Stop:
    """Let the agent work until it ends, or cancel it `grace_s` seconds after its time limit.

    Raises:
        AleError: it returned something other than a `Stop`.
        Exception: whatever the agent raises.
    """
    limit = context.limits.time_limit_s
    cutoff = None if limit is None else limit + grace_s
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


def model_for(llm: LLM | None, plan: EpisodePlan, record: EpisodeRecord) -> LLM:
    """The model as the agent sees it: expert-guided where the episode's start has an expert."""
    if llm is None:
        return _NoLLM()
    if plan.job.temperature is not None:
        return _AtTemperature(llm, plan.job.temperature)
    if plan.start.expert is None and plan.start.next_action is None:
        return llm
    assert isinstance(llm, Policy)  # checked when the parts were built
    restoring = record.restoring
    record.expert_guided = ExpertGuidedLLM(
        llm, plan.start, None if restoring is None else restoring.expert_finished
    )
    return record.expert_guided


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
