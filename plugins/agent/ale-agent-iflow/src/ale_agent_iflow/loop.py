"""The agent's loop: ask, run the calls, record the turn, until done or at a limit."""

import logging
from collections.abc import Callable, Sequence

from ale.agents import BadCallError, EndedError, EpisodeLoop
from ale.errors import AleError, ToolsUnsupportedError
from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.types import Completion, Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_iflow.context import Exchange
from ale_agent_iflow.dialect import NATIVE, TEXT, Dialect, dialect
from ale_agent_iflow.dialogue import Dialogue
from ale_agent_iflow.options import IflowOptions
from ale_agent_iflow.prompt import bad_call_hint, reminder, system_prompt
from ale_agent_iflow.result import Result
from ale_agent_iflow.text_format import Reading, has_text
from ale_agent_iflow.tools import check
from ale_agent_iflow.workspace import Workspace

_log = logging.getLogger(__name__)


class IflowAgent:
    """A model that acts by calling tools. Runs many episodes at once.

    Raises:
        InputError: when made: its system prompt can't be read.
    """

    def __init__(self, options: IflowOptions, context: BuildContext) -> None:
        self._options = options
        self._prompt = system_prompt(options)
        self._monotonic = context.monotonic
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
            return await episode.run()
        finally:
            self._note_refusal(episode)

    def _note_refusal(self, episode: "Episode") -> None:
        """Warn once that calls are text from now on."""
        if episode.refusal is None or self._tools_refused:
            return
        self._tools_refused = True
        _log.warning("the model takes no tools, so calls are written as text: %s", episode.refusal)


class Episode(EpisodeLoop):
    """One run of the loop."""

    def __init__(
        self,
        options: IflowOptions,
        prompt: str,
        monotonic: Callable[[], float],
        context: AgentContext,
    ) -> None:
        super().__init__(context, monotonic=monotonic)
        self.workspace = Workspace(context.sandbox, max_output_bytes=options.max_output_bytes)
        self._options = options
        self._system = prompt.replace("{workdir}", context.sandbox.workdir)
        self._reading = Reading()
        self._hint = ""  # what is added to the error of a bad call
        self._reminders = 0  # in a row
        self.refusal: ToolsUnsupportedError | None = None
        """Why calls are text though the model component has tools."""
        self.use(dialect(options.tool_format, context.llm.capabilities))

    def use(self, dialect: Dialect) -> None:
        """Start the conversation anew, with tools in this format."""
        self._dialect = dialect
        head = (
            Message(role="system", content=self._system + dialect.instructions),
            Message(role="user", content=self.context.task.goal),
        )
        self._dialogue = Dialogue(head, self.context, self._options, dialect.specs)

    async def ask(self) -> Turn:
        """The next completion; the calls in it are read, and `stop` is set if it finishes."""
        turn = await self._complete()
        self._hint = bad_call_hint(turn.completion, self._dialect.format_hint)
        self._reading = self._dialect.read(turn.completion, self.budget.turns)
        if not self._reading.calls and self._finishes(turn.completion):
            self.stop = Stop(reason="finished", detail=turn.completion.message.content)
        idle = not self._reading.calls and self.stop is None
        return replace(turn, credited=not idle)

    async def _complete(self) -> Turn:
        try:
            return await self._dialogue.ask(self.budget.turns)
        except ToolsUnsupportedError as error:
            # Native calls in the conversation could not be sent to such a server either.
            started = self.budget.turns > 0
            if started or self._dialect is not NATIVE or self._options.tool_format != "auto":
                raise
            self.refusal = error
        self.use(TEXT)
        return await self._dialogue.ask(self.budget.turns)

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """In the format of the dialect."""
        return self._reading.calls

    def observed(self, turn: Turn) -> None:
        """Continue the dialogue, with a reminder where the model has called nothing."""
        idle = not self._reading.calls
        self._dialogue.append(
            Exchange(
                answer=turn.completion.message,
                calls=self._reading.calls,
                observations=turn.observations,
                reminder=self._remind(turn.completion) if idle else (),
            )
        )
        self._reminders = self._reminders if idle else 0

    async def close(self) -> None:
        """End the shell."""
        await self.workspace.shell.close()

    def _finishes(self, completion: Completion) -> bool:
        """Does this answer without a call end the episode?"""
        whole = completion.finish_reason not in ("length", "content_filter")
        finish, acted = self._options.finish, self.budget.steps > 0
        by_text = finish == "text" or (finish == "after-call" and acted)
        return by_text and whole and has_text(completion.message.content)

    def _remind(self, completion: Completion) -> tuple[Message, ...]:
        if self._reminders >= self._options.max_reminders:
            detail = f"{self._reminders + 1} answers in a row without a tool call"
            raise EndedError(Stop(reason="gave_up", detail=detail))
        self._reminders += 1
        text = reminder(completion, self._dialect.format_hint)
        return (Message(role="user", content=text),)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Run one call, or show the model its mistake."""
        try:
            tool, arguments = check(call)
        except BadCallError as error:
            result = Result(content=f"[error: {error}]{self._hint}", error=str(error))
        else:
            result = await tool.verb(self.workspace)(**arguments, timeout_s=timeout_s)
        if result.finished:
            self.stop = Stop(reason="finished", detail=result.content)
        return Observation(
            call_id=call.id,
            tool=call.name,
            content=self._dialect.show(call.name, result.content, self._reading.note),
            role=self._dialect.role,
            error=result.error,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            truncated=result.truncated,
        )

    def not_run(self, call: ToolCall, why: str) -> Observation:
        """In the format of the dialect."""
        content = self._dialect.show(call.name, f"[{why}]", "")
        return replace(super().not_run(call, why), content=content, role=self._dialect.role)
