"""Experts: they answer in the model's place, from a reference solution or a stored episode."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from ale.errors import ReplayError
from ale.types import CompletionRequest, FinishReason, Message, ToolCall, ToolSpec, Turn, replace

Check = Literal["exact", "exit_code", "off"]

CLOSING = "Done."
"""Closing message of a reference solution."""
_EXIT = re.compile(r"\[(?:exit code (-?[0-9]+)|(timed out))")
_EXCERPT = 300


@frozen(kw_only=True)
class SolutionExpert:
    """Answers with a reference solution, one command per turn, then a closing turn; then None.

    An answer depends on the request's turn alone, so repeating a request repeats it. Outputs of the
    commands are not checked: a solution has no recording to compare with.
    """

    commands: Sequence[str]
    upto: int | None = None
    """Number of turns answered; None: all of them, one per command and a closing turn."""

    def answer(self, request: CompletionRequest) -> Message | None:
        """The turn's command, as a call of the agent's own tool; None after the last turn.

        Raises:
            ReplayError: the agent has no tool that takes a command.
        """
        turn, last = request.turn, len(self.commands)
        if turn > last or (self.upto is not None and turn >= self.upto):
            return None
        if turn == last:
            return _closing(request)
        tool = _command_tool(request.tools)
        return _call(turn, tool.name, {"command": self.commands[turn]})


def _command_tool(tools: Sequence[ToolSpec]) -> ToolSpec:
    for tool in tools:
        known, required = tool.parameters.get("properties", {}), _required(tool)
        if known.get("command", {}).get("type") == "string" and {*required} <= {"command"}:
            return tool
    names = ", ".join(tool.name for tool in tools) or "none at all"
    raise ReplayError(
        "this agent has no tool for the commands of a reference solution: expected one that "
        f"requires a text 'command' and nothing else, found {names}"
    )


def _closing(request: CompletionRequest) -> Message:
    """A call of ``finish`` if there is such a tool, else a message without a call."""
    tool = next((tool for tool in request.tools if tool.name == "finish"), None)
    if tool is None:
        return Message(role="assistant", content=CLOSING)
    known = tool.parameters.get("properties", {})
    texts = [name for name in _required(tool) if known.get(name, {}).get("type") == "string"]
    return _call(request.turn, tool.name, dict.fromkeys(texts, CLOSING))


def _required(tool: ToolSpec) -> Sequence[str]:
    return tuple(tool.parameters.get("required", ()))


def _call(turn: int, name: str, arguments: Mapping[str, Any]) -> Message:
    text = json.dumps(arguments, ensure_ascii=False)
    call = ToolCall(id=_call_id(turn, 0), name=name, arguments=text)
    return Message(role="assistant", tool_calls=(call,))


def _call_id(turn: int, number: int) -> str:
    """Depends on the position alone, so that a demonstration is always the same text."""
    return f"call_{turn}_{number}"


@frozen(kw_only=True)
class Exchange:
    """An answer of an episode, and the observations that the model was shown after it."""

    answer: Message
    observed: tuple[str, ...]
    finish_reason: FinishReason = "stop"


def exchanges(turns: Sequence[Turn]) -> tuple[Exchange, ...]:
    """The parts needed to repeat an episode: no token traces, and call ids are renumbered."""
    return tuple(_exchange(number, turn) for number, turn in enumerate(turns))


def _exchange(number: int, turn: Turn) -> Exchange:
    message = turn.completion.message
    calls = tuple(
        replace(call, id=_call_id(number, i)) for i, call in enumerate(message.tool_calls)
    )
    observed = tuple(observation.content for observation in turn.observations)
    return Exchange(
        answer=replace(message, tool_calls=calls),
        observed=observed,
        finish_reason=turn.completion.finish_reason,
    )


@frozen(kw_only=True)
class EpisodeExpert:
    """Repeats the first answers of an episode while observations equal the recorded ones."""

    exchanges: Sequence[Exchange]
    upto: int
    """Number of turns repeated."""
    check: Check

    def answer(self, request: CompletionRequest) -> Message | None:
        """The recorded answer of this turn, after checking the previous turn's observations.

        Raises:
            ReplayError: they differ from the recording; the message names both.
        """
        turn = request.turn
        if turn > self.upto:
            return None
        if turn > 0 and self.check != "off":
            self._compare(turn - 1, request)
        return self.exchanges[turn].answer if turn < self.upto else None

    def finish_reason(self, request: CompletionRequest) -> FinishReason:
        """The recorded reason: an agent treats an answer that was cut off in another way."""
        return self.exchanges[request.turn].finish_reason

    def _compare(self, turn: int, request: CompletionRequest) -> None:
        recorded = self.exchanges[turn].observed
        found = _since_last_answer(request.messages)
        if found is None:
            raise ReplayError(
                f"turn {turn} of the replay can't be checked: the agent compacted its context "
                "before; starts.check: off replays without checks"
            )
        compared: Callable[[str], str | None] = str if self.check == "exact" else _ended
        for number, text in enumerate(recorded):
            shown = found[number] if number < len(found) else None
            if shown is None or compared(text) != compared(shown):
                raise ReplayError(_diverged(turn, text, shown, self.check))


def _since_last_answer(messages: Sequence[Message]) -> list[str] | None:
    answers = [i for i, message in enumerate(messages) if message.role == "assistant"]
    return [message.content for message in messages[answers[-1] + 1 :]] if answers else None


def _ended(text: str) -> str | None:
    """The last exit code or ``timed out`` that the text states; None if it states none."""
    found = [code or late for code, late in _EXIT.findall(text)]
    return found[-1] if found else None


def _diverged(turn: int, recorded: str, shown: str | None, check: Check) -> str:
    what = "exit code" if check == "exit_code" else "observation"
    found = "nothing" if shown is None else _excerpt(shown)
    return (
        f"the replay differs from the recording: {what} after turn {turn}\n"
        f"recorded  {_excerpt(recorded)}\nfound     {found}"
    )


def _excerpt(text: str) -> str:
    """The end of the text, which states how a command ended."""
    return repr(text if len(text) <= _EXCERPT else f"...{text[-_EXCERPT:]}")
