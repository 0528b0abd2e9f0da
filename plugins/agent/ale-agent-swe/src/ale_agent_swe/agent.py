"""The agent that works in phases: plan, patch, test, repair."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ale.agents import BadCallError, EpisodeLoop, Shell, shell_observation
from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.types import ExecResult, Limits, Message, Observation, Stop, ToolCall, Turn, replace
from ale_agent_swe.actions import HOW_BY_TOOLS, HOW_IN_TEXT, TOOLS, Phase, parsed
from ale_agent_swe.options import PlanPatchTestOptions, Prompts
from ale_agent_swe.patching import RejectedError, change, has_git

_LIST = "git ls-files 2>/dev/null || find . -type f -not -path '*/.git/*'"
_LISTING_S = 60.0
_LISTED = 200


class PlanPatchTestAgent:
    """Leads a model through the phases."""

    def __init__(self, options: PlanPatchTestOptions, context: BuildContext) -> None:
        self._options = options
        self._prompts = Prompts.read(options.prompts)
        self._monotonic = context.monotonic

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
        """Work until tests pass, no repair is left, or to a limit."""
        options, made = self._options, _TextEpisode
        files = await self._listing(context) if "{files}" in self._prompts.plan else ""
        native = options.tool_format == "native"
        if native or (options.tool_format == "auto" and context.llm.capabilities.tools):
            made = _NativeEpisode
        had_git = await has_git(context.sandbox)
        episode = made(options, self._prompts, files, had_git, context, monotonic=self._monotonic)
        return await episode.run()

    async def _listing(self, context: AgentContext) -> str:
        result = await context.sandbox.exec(_LIST, timeout_s=_LISTING_S)
        names = sorted(result.stdout.decode(errors="replace").splitlines())
        most = _LISTED
        more = [f"... and {len(names) - most} more"] if len(names) > most else []
        return "\n".join([*names[:most], *more])


class _TextEpisode(EpisodeLoop):
    """An episode whose actions are blocks of text."""

    how = HOW_IN_TEXT

    def __init__(
        self,
        options: PlanPatchTestOptions,
        prompts: Prompts,
        files: str,
        had_git: bool,
        context: AgentContext,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._prompts = prompts
        self._files = files
        self._had_git = had_git
        self._phase: Phase = "plan"
        self._repairs = 0
        shell = Shell(context.sandbox, max_output_bytes=options.max_output_bytes)
        super().__init__(context, monotonic=monotonic, shell=shell)

    def head(self) -> tuple[Message, ...]:
        """As the options say."""
        options = self._options
        content = self._filled(self._prompts.plan, goal=self.context.task.goal, files=self._files)
        user = Message(role="user", content=content)
        if not options.system_prompt:
            return (user,)
        return Message(role="system", content=options.system_prompt), user

    def calls(self, turn: Turn) -> Sequence[ToolCall]:
        """The model's calls, or the one action in its text: empty where there is none."""
        message = turn.completion.message
        if message.tool_calls:
            return message.tool_calls
        found = parsed(message.content, self._phase, self._text_id)
        return (found or ToolCall(id=self._text_id, name=self._phase, arguments=""),)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Act, and go to the next phase where this one is over."""
        if not call.arguments and call.id == self._text_id:
            raise BadCallError(self._filled(self._prompts.no_action))
        given = self.arguments(call)
        if call.name == "shell":
            return self._seen(call, await self._run(given, timeout_s), timeout_s)
        if call.name == "finish":
            self.stop = Stop(reason="finished", detail=str(given.get("summary", "")))
            return self._observation(call, "The work is over.")
        if call.name != self._phase:
            raise BadCallError(f"this is the phase {self._phase}. {self.how[self._phase]}")
        if call.name == "plan":
            self._phase = "patch"
            return self._observation(call, self._filled(self._prompts.patch))
        if call.name == "test":
            result = await self._run(given, timeout_s)
            return self._tested(call, result, timeout_s)
        return await self._patch(call, given, timeout_s)

    async def _patch(
        self, call: ToolCall, given: Mapping[str, Any], timeout_s: float | None
    ) -> Observation:
        try:
            diff, files = given.get("diff") or "", given.get("files") or {}
            await change(self.context.sandbox, diff, files, had_git=self._had_git)
        except RejectedError as error:
            content = self._filled(self._prompts.rejected, error=str(error))
            return replace(self._observation(call, content), error="the patch does not apply")
        command = self._options.test_command
        if command:
            return self._tested(call, await self.shell.run(command, timeout_s), timeout_s)
        self._phase = "test"
        return self._observation(call, self._filled(self._prompts.test))

    async def _run(self, given: Mapping[str, Any], timeout_s: float | None) -> ExecResult:
        return await self.shell.run(given["command"], timeout_s)

    def _tested(self, call: ToolCall, result: ExecResult, timeout_s: float | None) -> Observation:
        seen = self._seen(call, result, timeout_s)
        if seen.error is None:
            self.stop = Stop(reason="finished", detail="the tests passed")
            return seen
        if self._repairs == self._options.max_repairs:
            detail = f"the tests still fail after {self._repairs} repairs"
            self.stop = Stop(reason="gave_up", detail=detail)
            return seen
        self._repairs += 1
        self._phase = "repair"
        content = self._filled(self._prompts.repair, output=seen.content)
        return replace(seen, content=content)

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """Those of the text, which are whole; a model without tools has invented its calls."""
        if call.id == self._text_id:
            made: dict[str, Any] = json.loads(call.arguments)
            return made
        raise BadCallError(f"there are no tools. {self.how[self._phase]}")

    def not_run(self, call: ToolCall, why: str) -> Observation:
        """As the user's, where the action is text."""
        return self._with_role(call, super().not_run(call, why))

    def _observation(self, call: ToolCall, content: str) -> Observation:
        return self._with_role(call, Observation(call_id=call.id, tool=call.name, content=content))

    def _seen(self, call: ToolCall, result: ExecResult, timeout_s: float | None) -> Observation:
        return self._with_role(call, shell_observation(call, result, timeout_s))

    def _with_role(self, call: ToolCall, observation: Observation) -> Observation:
        return replace(observation, role="user") if call.id == self._text_id else observation

    @property
    def _text_id(self) -> str:
        return f"text_{self.budget.turns}"

    def _filled(self, template: str, **values: str) -> str:
        """A template with its names replaced; other braces stay as they are."""
        values = {"how": self.how[self._phase], **values}
        return re.sub(rf"\{{({'|'.join(values)})\}}", lambda match: values[match[1]], template)


class _NativeEpisode(_TextEpisode):
    """An episode whose actions are tool calls; blocks of text count where there is no call."""

    tools = TOOLS
    how = HOW_BY_TOOLS

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """Of a tool, or of the text."""
        if call.id == self._text_id:
            return super().arguments(call)
        return EpisodeLoop.arguments(self, call)
