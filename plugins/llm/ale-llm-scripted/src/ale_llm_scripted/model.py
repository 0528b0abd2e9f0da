"""The model: lines of a script or a recording, with a delay before each."""

import asyncio
from typing import Literal, Protocol

from ale.errors import LLMError
from ale.types import Completion, CompletionRequest, LLMCapabilities

AtEnd = Literal["stop", "error"]


class Lines(Protocol):
    """The source of the answers. The same conversation and turn always give the same answer."""

    traced_end: bool
    """Does the answer of `last` have a token trace if the other answers do?"""

    @property
    def capabilities(self) -> LLMCapabilities:
        """Capabilities of these lines."""
        ...

    async def line(self, request: CompletionRequest) -> Completion | None:
        """The answer to a turn; None after the last.

        Raises:
            LLMError: there are no lines for this conversation, or the line is an error.
        """
        ...

    def last(self, request: CompletionRequest) -> Completion:
        """An answer without text and calls, to end a conversation."""
        ...

    def close(self) -> None:
        """Close files; repeatable."""
        ...


class ScriptedLLM:
    """Answers from `Lines`, by conversation and turn only; order and time have no influence.

    Args:
        latency_s: seconds before every answer, errors included.
        at_end: what comes after the last line: an answer that stops, or an error.
    """

    def __init__(self, lines: Lines, *, latency_s: float = 0.0, at_end: AtEnd = "stop") -> None:
        self._lines = lines
        self._latency_s = latency_s
        self._at_end = at_end

    @property
    def capabilities(self) -> LLMCapabilities:
        """Capabilities of the lines; without tokens if the answer after the last line has none."""
        held = self._lines.capabilities
        if self._at_end == "stop" and not self._lines.traced_end:
            return LLMCapabilities(tools=held.tools, deterministic=held.deterministic)
        return held

    async def complete(self, request: CompletionRequest) -> Completion:
        """The line for this conversation and turn.

        Raises:
            LLMError: the line is an error, or there is none (and `at_end` is ``error``).
        """
        if self._latency_s > 0:
            await asyncio.sleep(self._latency_s)
        answer = await self._lines.line(request)
        if answer is not None:
            return answer
        if self._at_end == "stop":
            return self._lines.last(request)
        who = request.conversation
        raise LLMError(
            f"no line for turn {request.turn} of task {who.task_id!r}, rollout {who.rollout}"
        )

    async def aclose(self) -> None:
        """Close files."""
        self._lines.close()
