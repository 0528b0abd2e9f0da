"""The agent's loop: ask, run the calls, record the turn, until done or at a limit."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ale.errors import AleError, SandboxError
from ale.protocols import AgentContext
from ale.types import Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_iflow.budget import Budget, EndedError
from ale_agent_iflow.context import Exchange
from ale_agent_iflow.dialect import dialect
from ale_agent_iflow.dialogue import Dialogue, FoldPolicy
from ale_agent_iflow.prompt import bad_call_hint, nudge
from ale_agent_iflow.result import Result
from ale_agent_iflow.text_format import Reading
from ale_agent_iflow.tools import BadCallError, check
from ale_agent_iflow.workspace import Workspace

if TYPE_CHECKING:
    from ale_agent_iflow.plugin import IflowOptions


class IflowAgent:
    """A model that acts by calling tools. Runs many episodes at once.

    Args:
        prompt: system prompt; ``{workdir}`` in it stands for the working directory.
        monotonic: seconds from an arbitrary start; all durations and the time limit are by it.
    """

    def __init__(
        self, options: "IflowOptions", *, prompt: str, monotonic: Callable[[], float]
    ) -> None:
        self._options = options
        self._prompt = prompt
        self._monotonic = monotonic

    @property
    def limits(self) -> Limits:
        """As in the options."""
        options = self._options
        return Limits(
            max_steps=options.max_steps,
            max_turns=options.max_turns,
            tool_timeout_s=options.tool_timeout_s,
            time_limit_s=options.time_limit_s,
            context_max_tokens=options.context_max_tokens,
        )

    async def run(self, context: AgentContext) -> Stop:
        """Work on the task until it is finished or a limit is reached."""
        if needs := context.task.metadata.get("agent_needs"):
            raise AleError(f"the task gives its agent {', '.join(needs)}, which 'iflow' can't take")
        episode = Episode(self._options, self._prompt, self._monotonic, context)
        try:
            stop = await episode.run()
        except BaseException:
            with contextlib.suppress(SandboxError):  # what ended the run matters more
                await episode.workspace.shell.close()
            raise
        # Ending the shell would end the server that a task may ask for.
        if not context.task.keep_processes:
            await episode.workspace.shell.close()
        return stop


class Episode:
    """One run of the loop."""

    def __init__(
        self,
        options: "IflowOptions",
        prompt: str,
        monotonic: Callable[[], float],
        context: AgentContext,
    ) -> None:
        self.workspace = Workspace(context.sandbox, max_output_bytes=options.max_output_bytes)
        self._options = options
        self._recorder = context.recorder
        self._monotonic = monotonic
        self._budget = Budget(context.limits, monotonic)
        self._dialect = dialect(options.tool_format, context.llm.capabilities)
        system = prompt.replace("{workdir}", context.sandbox.workdir) + self._dialect.instructions
        self._dialogue = Dialogue(
            (
                Message(role="system", content=system),
                Message(role="user", content=context.task.goal),
            ),
            llm=context.llm,
            specs=self._dialect.specs,
            gauge=self._dialect.gauge,
            conversation=context.conversation,
            policy=FoldPolicy(
                max_tokens=context.limits.context_max_tokens,
                fold_to=options.fold_to,
                keep_turns=options.keep_turns,
            ),
        )
        self._finished: Stop | None = None
        self._silent = 0  # answers in a row without a call

    async def run(self) -> Stop:
        """Turn after turn, until one ends the episode."""
        try:
            while True:
                await self._turn()
        except EndedError as end:
            return end.stop

    async def _turn(self) -> None:
        if stop := self._budget.no_more_turns():
            raise EndedError(stop)
        started = self._monotonic()
        turn = await self._dialogue.ask(self._budget.turns, self._budget.time_left())
        if turn is None:
            raise EndedError(self._budget.out_of_time())
        reading = self._dialect.read(turn.completion, self._budget.turns)
        self._budget.turns += 1
        observations = await self._act(turn, reading, started)
        if self._finished is not None:
            raise EndedError(self._finished)
        self._silent = 0 if reading.calls else self._silent + 1
        self._dialogue.take(
            Exchange(
                answer=turn.completion.message,
                calls=reading.calls,
                observations=observations,
                nudge=self._nudge(turn) if self._silent else (),
            )
        )

    def _nudge(self, turn: Turn) -> tuple[Message, ...]:
        if self._silent > self._options.max_nudges:
            detail = f"{self._silent} answers in a row without a tool call"
            raise EndedError(Stop(reason="gave_up", detail=detail))
        return (Message(role="user", content=nudge(turn.completion, self._dialect.reminder)),)

    async def _act(self, turn: Turn, reading: Reading, started: float) -> tuple[Observation, ...]:
        """Run the calls in order and record the turn, however it ends."""
        done: list[Observation] = []
        try:
            for call in reading.calls:
                done.append(await self._observe(call, reading, turn))
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            why = "cancelled" if cancelled else f"{type(error).__name__}: {error}"
            done += [self._not_run(call, why) for call in reading.calls[len(done) :]]
            raise
        finally:
            duration_s = self._monotonic() - started
            self._recorder.append(replace(turn, observations=tuple(done), duration_s=duration_s))
        return tuple(done)

    async def _observe(self, call: ToolCall, reading: Reading, turn: Turn) -> Observation:
        if stop := self._finished or self._budget.no_more_calls():
            return self._not_run(call, f"not run: {stop.reason}")
        self._budget.steps += 1
        started = self._monotonic()
        try:
            tool, arguments = check(call)
        except BadCallError as error:
            hint = bad_call_hint(turn.completion, self._dialect.reminder)
            result = Result(content=f"[error: {error}]{hint}", error=str(error))
        else:
            timeout_s = self._budget.tool_timeout()
            result = await tool.verb(self.workspace)(**arguments, timeout_s=timeout_s)
        if result.finished:
            self._finished = Stop(reason="finished", detail=result.content)
        return Observation(
            call_id=call.id,
            tool=call.name,
            content=self._dialect.show(call.name, result.content, reading.note),
            role=self._dialect.role,
            error=result.error,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            truncated=result.truncated,
            duration_s=self._monotonic() - started,
        )

    def _not_run(self, call: ToolCall, why: str) -> Observation:
        return Observation(
            call_id=call.id,
            tool=call.name,
            content=self._dialect.show(call.name, f"[{why}]", ""),
            role=self._dialect.role,
            error=why,
        )
