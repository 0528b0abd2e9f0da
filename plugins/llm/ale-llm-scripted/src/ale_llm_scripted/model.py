"""The model: lines of a script or a recording, with a delay before each."""

import asyncio
from typing import Literal

from ale.errors import LLMError
from ale.types import Completion, CompletionRequest, LLMCapabilities
from ale_llm_scripted.options import ScriptedOptions
from ale_llm_scripted.play import Play
from ale_llm_scripted.replay import Recording
from ale_llm_scripted.script import read_script

AtEnd = Literal["stop", "error"]
Lines = Play | Recording


def build(options: ScriptedOptions) -> "ScriptedLLM":
    """Read the script or index the run.

    Raises:
        InputError: the script or the run can't be used; every problem at once.
        StoreError: a recorded episode can't be read.
    """
    lines: Lines
    if options.script is not None:
        script = read_script(options.script, tools=options.tools)
        lines = Play(script, tools=options.tools, name=str(options.script))
    else:
        assert options.replay is not None, "the options have exactly one of the two"
        lines = Recording(options.replay, tools=options.tools)
    return ScriptedLLM(lines, latency_s=options.latency_s, at_end=options.at_end)


class ScriptedLLM:
    """Answers from `lines`, by conversation and turn only; order and time have no influence.

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
