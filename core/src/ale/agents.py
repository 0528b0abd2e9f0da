"""For authors of agents: the loop that asks a model, runs its calls and records each turn.

Derive from `EpisodeLoop`, and define `tools` and `call`::

    class ShellEpisode(EpisodeLoop):
        tools = (SHELL,)

        async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
            command = self.arguments(call)["command"]
            return shell_observation(call, await self.shell.run(command, timeout_s), timeout_s)

The agent itself is then an object with `limits` and ``run``, which returns
``await ShellEpisode(context).run()``.
"""

import asyncio
import contextlib
import errno
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ale.errors import ContextLengthError, LLMError, SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES, AgentContext, Sandbox, Session
from ale.text import on_a_terminal
from ale.types import (
    CompletionRequest,
    ExecResult,
    Limits,
    Message,
    Observation,
    Stop,
    ToolCall,
    ToolSpec,
    Turn,
    replace,
)

__all__ = [
    "BadCallError",
    "Budget",
    "EndedError",
    "EpisodeLoop",
    "Shell",
    "from_home",
    "shell_observation",
]
_HOME_S = 30.0


class EndedError(Exception):
    """The episode is over."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        super().__init__(stop.reason)


class BadCallError(Exception):
    """The model made a mistake in a call; the message is the observation."""


class Budget:
    """Counts steps and turns, and watches the clock.

    Args:
        limits: `AgentContext.limits`.
        monotonic: seconds from an arbitrary start.
    """

    def __init__(self, limits: Limits, monotonic: Callable[[], float]) -> None:
        self.limits = limits
        self.steps = 0
        self.turns = 0
        self._monotonic = monotonic
        self._start = monotonic()

    def time_left(self) -> float | None:
        """Seconds until the time limit, at least 0; None without one."""
        if self.limits.time_limit_s is None:
            return None
        return max(0.0, self.limits.time_limit_s - (self._monotonic() - self._start))

    def tool_timeout(self) -> float | None:
        """Seconds that the next tool call may take: its own limit or the time left."""
        bounds = [s for s in (self.limits.tool_timeout_s, self.time_left()) if s is not None]
        return min(bounds, default=None)

    def no_more_calls(self) -> Stop | None:
        """Why no further tool call may be run, or None."""
        most = self.limits.max_steps
        if most is not None and self.steps >= most:
            return Stop(reason="max_steps", detail=f"{self.steps} of {most} tool calls used")
        if self.time_left() == 0.0:
            return self.out_of_time()
        return None

    def no_more_turns(self) -> Stop | None:
        """Why no further request may be sent, or None."""
        most = self.limits.max_turns
        if most is not None and self.turns >= most:
            return Stop(reason="max_turns", detail=f"{self.turns} of {most} completions used")
        return self.no_more_calls()

    def out_of_time(self) -> Stop:
        """The end by the clock."""
        return Stop(reason="time_limit", detail=f"{self.limits.time_limit_s:g} s are over")


class Shell:
    """One session of a sandbox, opened at the first command and again when it has ended.

    Args:
        max_output_bytes: of each stream of a command; see `Session.run`.
    """

    def __init__(self, sandbox: Sandbox, *, max_output_bytes: int = DEFAULT_OUTPUT_BYTES) -> None:
        self._sandbox = sandbox
        self._max_output_bytes = max_output_bytes
        self._session: Session | None = None

    async def run(self, command: str, timeout_s: float | None) -> ExecResult:
        """Run a command.

        Raises:
            SandboxError: the sandbox has failed.
        """
        if self._session is None or self._session.closed:
            self._session = await self._sandbox.session()
        return await self._session.run(
            command, timeout_s=timeout_s, max_output_bytes=self._max_output_bytes
        )

    async def close(self) -> None:
        """End the session and its processes. May be called again."""
        if self._session is not None:
            await self._session.close()


async def from_home(sandbox: Sandbox, path: str) -> str:
    """A path that begins with ``~`` as commands mean it; any other as it is.

    `Sandbox.write` would make a folder of that name.

    Raises:
        FileNotFoundError: the sandbox has no home folder, or the path is another user's.
        SandboxError: the sandbox has failed.
    """
    name, slash, rest = path.partition("/")
    if not name.startswith("~"):
        return path
    said = await sandbox.exec('printf %s "$HOME"', timeout_s=_HOME_S)
    home = said.stdout.decode(errors="surrogateescape")
    if name != "~" or not home.startswith("/"):
        raise FileNotFoundError(errno.ENOENT, f"{name} is no folder here; write its path", path)
    return f"{home.rstrip('/')}{slash}{rest}"


class EpisodeLoop(ABC):
    """One episode of an agent. Make a new object for each.

    The loop enforces `AgentContext.limits` and records each turn when its calls have run, also
    when the agent is cancelled or an error ends it: calls that did not run get an observation that
    gives the reason.

    Args:
        monotonic: seconds from an arbitrary start, `BuildContext.monotonic`; measures durations
            and the time limit.
        shell: for `call`; closed at the end unless the task keeps its processes.
    """

    tools: ClassVar[Sequence[ToolSpec]] = ()
    """The tools that the model may call."""

    def __init__(
        self,
        context: AgentContext,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        shell: Shell | None = None,
    ) -> None:
        self.context = context
        self.budget = Budget(context.limits, monotonic)
        self.shell = shell or Shell(context.sandbox)
        self.stop: Stop | None = None
        """Set it to end the episode after this turn; its remaining calls are not run."""
        self._monotonic = monotonic
        self._prompt: tuple[Message, ...] = self.head()
        self._messages = self._prompt

    # -- for the author

    @abstractmethod
    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Run one call, in at most `timeout_s` seconds. The loop adds the duration.

        Raises:
            BadCallError: the model made a mistake, which it is shown.
            SandboxError: the sandbox has failed; the episode is broken.
        """

    def head(self) -> tuple[Message, ...]:
        """The first messages of the conversation: by default the goal, as the user's."""
        return (Message(role="user", content=self.context.task.goal),)

    async def ask(self) -> Turn:
        """The next completion, as a turn without observations.

        Raises:
            EndedError: the conversation has become too long.
            LLMError: as `LLM.complete`; the episode is broken.
        """
        context, first = self.context, self.budget.turns == 0
        if self.tools and not context.llm.capabilities.tools:
            raise LLMError("this agent needs a model that can call tools")
        request = CompletionRequest(
            messages=self._messages,
            tools=tuple(self.tools),
            conversation=context.conversation,
            turn=self.budget.turns,
            fresh_context=first,
        )
        try:
            completion = await context.llm.complete(request)
        except ContextLengthError as error:
            raise EndedError(Stop(reason="context", detail=str(error))) from error
        tools = request.tools if first else ()
        return Turn(prompt=self._prompt, fresh_context=first, completion=completion, tools=tools)

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """The calls of a completion; override it where they are written as text."""
        return turn.completion.message.tool_calls

    def observed(self, turn: Turn) -> None:
        """Continue the conversation after a recorded turn, or set `stop`.

        By default an answer without a call ends the episode as finished.
        """
        message, usage = turn.completion.message, turn.completion.usage
        if not self.calls(turn):
            self.stop = Stop(reason="finished", detail=message.content)
        most = self.context.limits.context_max_tokens
        if most is not None and usage.prompt_tokens + usage.completion_tokens >= most:
            self.stop = self.stop or Stop(reason="context", detail=f"{most} tokens used")
        shown = (observation.as_message() for observation in turn.observations)
        self._messages = (*self._messages, message, *shown)
        self._prompt = ()

    def not_run(self, call: ToolCall, why: str) -> Observation:
        """The observation of a call that was not run to its end."""
        return Observation(call_id=call.id, tool=call.name, content=f"[{why}]", error=why)

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """The arguments of a call to one of `tools`.

        Raises:
            BadCallError: no such tool, no JSON object, a required argument is missing, or one has
                another type than the tool's schema gives it.
        """
        spec = next((spec for spec in self.tools if spec.name == call.name), None)
        if spec is None:
            names = ", ".join(spec.name for spec in self.tools)
            raise BadCallError(f"there is no tool {call.name}, only {names}")
        try:
            given = json.loads(call.arguments)
        except ValueError as error:
            raise BadCallError(f"the arguments are not JSON: {error}") from error
        except RecursionError:
            raise BadCallError("the arguments are nested too deeply") from None
        if not isinstance(given, dict):
            raise BadCallError("the arguments are not a JSON object")
        if missing := [name for name in spec.parameters.get("required") or () if name not in given]:
            raise BadCallError(f"missing argument: {', '.join(missing)}")
        if wrong := _wrong_types(given, spec.parameters):
            raise BadCallError("; ".join(wrong))
        return given

    async def close(self) -> None:
        """Release what the episode has opened. May be called again."""
        await self.shell.close()

    # -- the loop

    async def run(self) -> Stop:
        """Work until the model finishes or a limit is reached."""
        try:
            stop = await self._turns()
        except BaseException:
            with contextlib.suppress(SandboxError):  # what ended the run matters more
                await self.close()
            raise
        # Closing the shell would end the server that a task may ask for.
        if not self.context.task.keep_processes:
            await self.close()
        return stop

    async def _turns(self) -> Stop:
        try:
            while self.stop is None:
                await self._turn()
        except EndedError as end:
            return end.stop
        return self.stop

    async def _turn(self) -> None:
        if stop := self.budget.no_more_turns():
            raise EndedError(stop)
        started = self._monotonic()
        turn = await self._ask_in_time()
        self.budget.turns += 1
        turn = await self._act(turn, started)
        if self.stop is None:
            self.observed(turn)

    async def _ask_in_time(self) -> Turn:
        timer = asyncio.timeout(self.budget.time_left())
        try:
            async with timer:
                return await self.ask()
        except TimeoutError:
            if timer.expired():
                raise EndedError(self.budget.out_of_time()) from None
            raise

    async def _act(self, turn: Turn, started: float) -> Turn:
        """Run the calls in order and record the turn, however it ends."""
        calls, done = self.calls(turn), list[Observation]()
        try:
            for call in calls:
                done.append(await self._observe(call))
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            why = "cancelled" if cancelled else f"{type(error).__name__}: {error}"
            done += [self.not_run(call, why) for call in calls[len(done) :]]
            raise
        finally:
            turn = replace(turn, observations=tuple(done), duration_s=self._monotonic() - started)
            self.context.recorder.append(turn)
        return turn

    async def _observe(self, call: ToolCall) -> Observation:
        if stop := self.stop or self.budget.no_more_calls():
            return self.not_run(call, f"not run: {stop.reason}")
        self.budget.steps += 1
        timeout_s = self.budget.tool_timeout()
        started = self._monotonic()
        try:
            observation = await self.call(call, timeout_s)
        except BadCallError as error:
            observation = self.not_run(call, str(error))
        return replace(observation, duration_s=self._monotonic() - started)


_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "text"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "object": (dict, "an object"),
    "array": (list, "a list"),
}
"""The types of JSON's schemas: those of Python, and what a model is told."""


def _wrong_types(given: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """One line for each argument that has not the one type that its property names."""
    wrong = []
    required = schema.get("required") or ()
    for name, about in (schema.get("properties") or {}).items():
        # A schema may also be true, false or one with other words than "type".
        expected = about.get("type") if isinstance(about, Mapping) else None
        if name not in given or not isinstance(expected, str) or expected not in _TYPES:
            continue
        value = given[name]
        # Many models write null for an argument that they leave out.
        if value is None and (name not in required or about.get("nullable") is True):
            continue
        # To Python, true and false are numbers.
        boolean = isinstance(value, bool)
        types, told = _TYPES[expected]
        if not isinstance(value, types) or (boolean and expected != "boolean"):
            wrong.append(f"{name} must be {told}")
    return sorted(wrong)


def shell_observation(call: ToolCall, result: ExecResult, timeout_s: float | None) -> Observation:
    """The output of a command: stdout, stderr, then its exit code in brackets.

    A progress bar is shown in its last state, as on a terminal.

    Args:
        timeout_s: the one that the command was given.
    """
    error = f"exit code {result.exit_code}" if result.exit_code else None
    if result.timed_out:
        error = f"timed out after {timeout_s or 0.0:.4g} s"
    parts = [
        on_a_terminal(result.stdout.decode("utf-8", "backslashreplace")),
        on_a_terminal(result.stderr.decode("utf-8", "backslashreplace")),
        f"[{error or 'exit code 0'}]",
    ]
    return Observation(
        call_id=call.id,
        tool=call.name,
        content="\n".join(part.removesuffix("\n") for part in parts if part),
        error=error,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        truncated=result.truncated,
    )
