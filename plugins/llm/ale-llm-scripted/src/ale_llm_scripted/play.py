"""A written script as the lines of a model."""

import asyncio

from ale.errors import LLMError
from ale.strict import nearest
from ale.types import (
    Completion,
    CompletionRequest,
    LLMCapabilities,
    Message,
    ToolCall,
    Usage,
)
from ale_llm_scripted import tokens
from ale_llm_scripted.script import Line, Script


class Play:
    """The answers that a script has for each task, rollout and turn."""

    traced_end = True
    """Does the answer of `last` have a token trace if the other answers do?"""

    def __init__(self, script: Script, *, tools: bool = True, name: str = "the script") -> None:
        self._script = script
        self._name = name
        self._capabilities = LLMCapabilities(
            tools=tools,
            token_ids=script.tokens,
            logprobs=script.tokens,
            deterministic=True,
        )

    @property
    def capabilities(self) -> LLMCapabilities:
        """Token ids and log-probabilities where the script says ``tokens: true``."""
        return self._capabilities

    async def line(self, request: CompletionRequest) -> Completion | None:
        """The line of this turn; None after the last.

        Raises:
            LLMError: there are no lines for this conversation, or the line is an error.
        """
        who = request.conversation
        lines = self._script.lines(who.task_id, who.rollout)
        if lines is None:
            near = nearest(who.task_id, self._script.tasks)
            raise LLMError(
                f"{self._name} has no lines for task {who.task_id!r} and no 'default'"
                + (f"; {near}" if near else "")
            )
        if request.turn >= len(lines):
            return None
        line = lines[request.turn]
        if line.sleep_s > 0:
            await asyncio.sleep(line.sleep_s)
        if line.error is not None:
            raise LLMError(line.error, transient=line.transient)
        return self._say(request, line)

    def last(self, request: CompletionRequest) -> Completion:
        """An empty answer."""
        return self._say(request, Line())

    def close(self) -> None:
        """Nothing is open."""

    def _say(self, request: CompletionRequest, line: Line) -> Completion:
        calls = tuple(
            ToolCall(id=f"call_{request.turn}_{i}", name=call.name, arguments=call.text)
            for i, call in enumerate(line.all_calls)
        )
        message = Message(
            role="assistant", content=line.text, reasoning=line.reasoning, tool_calls=calls
        )
        return Completion(
            message=message,
            finish_reason=line.finish_reason or ("tool_calls" if calls else "stop"),
            usage=_usage(request, message, line),
            model=self._script.model,
            tokens=tokens.trace(request, message) if self._script.tokens else None,
        )


def _usage(request: CompletionRequest, message: Message, line: Line) -> Usage:
    prompt, completion = line.prompt_tokens, line.tokens
    return Usage(
        prompt_tokens=tokens.count_prompt(request.messages) if prompt is None else prompt,
        completion_tokens=tokens.count_body(message) if completion is None else completion,
    )
