"""The agent's loop: ask, run the calls, record the turn, until done or at a limit."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ale.errors import AleError, SandboxError, ToolsUnsupportedError
from ale.protocols import AgentContext
from ale.types import Completion, Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_iflow.budget import Budget, EndedError
from ale_agent_iflow.context import Exchange
from ale_agent_iflow.dialect import NATIVE, TEXT, Dialect, dialect
from ale_agent_iflow.dialogue import CompactionPolicy, Dialogue
from ale_agent_iflow.options import IflowOptions
from ale_agent_iflow.prompt import bad_call_hint, reminder
from ale_agent_iflow.result import Result
from ale_agent_iflow.text_format import Reading, has_text
from ale_agent_iflow.tools import BadCallError, check
from ale_agent_iflow.workspace import Workspace

_log = logging.getLogger(__name__)


class IflowAgent:
    """A model that acts by calling tools. Runs many episodes at once.

    Args:
        prompt: system prompt; ``{workdir}`` in it stands for the working directory.
        monotonic: seconds from an arbitrary start; all durations and the time limit are by it.
    """

    def __init__(
        self, options: IflowOptions, *, prompt: str, monotonic: Callable[[], float]
    ) -> None:
        self._options = options
        self._prompt = prompt
        self._monotonic = monotonic
        self._tools_refused = False

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
            raise AleError(
                f"the task gives its agent {', '.join(needs)}, which 'iflow' does not support"
            )
        episode = Episode(self._options, self._prompt, self._monotonic, context)
        if self._tools_refused:
            episode.use(TEXT)
        try:
            stop = await episode.run()
        except BaseException:
            with contextlib.suppress(SandboxError):  # what ended the run matters more
                await episode.workspace.shell.close()
            raise
        finally:
            self._note_refusal(episode)
        # Ending the shell would end the server that a task may ask for.
        if not context.task.keep_processes:
            await episode.workspace.shell.close()
        return stop

    def _note_refusal(self, episode: "Episode") -> None:
        """Warn once that calls are text from now on."""
        if episode.refusal is None or self._tools_refused:
            return
        self._tools_refused = True
        _log.warning("the model takes no tools, so calls are written as text: %s", episode.refusal)


class Episode:
    """One run of the loop."""

    def __init__(
        self,
        options: IflowOptions,
        prompt: str,
        monotonic: Callable[[], float],
        context: AgentContext,
    ) -> None:
        self.workspace = Workspace(context.sandbox, max_output_bytes=options.max_output_bytes)
        self._options = options
        self._recorder = context.recorder
        self._monotonic = monotonic
        self._budget = Budget(context.limits, monotonic)
        self._context = context
        self._prompt = prompt.replace("{workdir}", context.sandbox.workdir)
        self._finished: Stop | None = None
        self._reminders = 0  # in a row
        self.refusal: ToolsUnsupportedError | None = None
        """Why calls are text though the model component has tools."""
        self.use(dialect(options.tool_format, context.llm.capabilities))

    def use(self, dialect: Dialect) -> None:
        """Start the conversation anew, with tools in this format."""
        context, options = self._context, self._options
        self._dialect = dialect
        self._dialogue = Dialogue(
            (
                Message(role="system", content=self._prompt + dialect.instructions),
                Message(role="user", content=context.task.goal),
            ),
            llm=context.llm,
            specs=dialect.specs,
            gauge=dialect.gauge,
            conversation=context.conversation,
            policy=CompactionPolicy(
                max_tokens=context.limits.context_max_tokens,
                compact_to=options.compact_to,
                keep_turns=options.keep_turns,
            ),
        )

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
        turn = await self._ask()
        if turn is None:
            raise EndedError(self._budget.out_of_time())
        reading = self._dialect.read(turn.completion, self._budget.turns)
        self._budget.turns += 1
        if not reading.calls and self._finishes(turn.completion):
            self._finished = Stop(reason="finished", detail=turn.completion.message.content)
        idle = not reading.calls and self._finished is None
        observations = await self._act(replace(turn, credited=not idle), reading, started)
        if self._finished is not None:
            raise EndedError(self._finished)
        self._dialogue.append(
            Exchange(
                answer=turn.completion.message,
                calls=reading.calls,
                observations=observations,
                reminder=self._remind(turn.completion) if idle else (),
            )
        )
        self._reminders = self._reminders if idle else 0

    async def _ask(self) -> Turn | None:
        try:
            return await self._dialogue.ask(self._budget.turns, self._budget.time_left())
        except ToolsUnsupportedError as error:
            # Native calls in the conversation could not be sent to such a server either.
            started = self._budget.turns > 0
            if started or self._dialect is not NATIVE or self._options.tool_format != "auto":
                raise
            self.refusal = error
        self.use(TEXT)
        return await self._dialogue.ask(self._budget.turns, self._budget.time_left())

    def _finishes(self, completion: Completion) -> bool:
        """Does this answer without a call end the episode?"""
        whole = completion.finish_reason not in ("length", "content_filter")
        acted = self._budget.steps > 0
        by_text = self._options.finish == "text"
        return by_text and acted and whole and has_text(completion.message.content)

    def _remind(self, completion: Completion) -> tuple[Message, ...]:
        if self._reminders >= self._options.max_reminders:
            detail = f"{self._reminders + 1} answers in a row without a tool call"
            raise EndedError(Stop(reason="gave_up", detail=detail))
        self._reminders += 1
        text = reminder(completion, self._dialect.format_hint)
        return (Message(role="user", content=text),)

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
            hint = bad_call_hint(turn.completion, self._dialect.format_hint)
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
