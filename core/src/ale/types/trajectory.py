"""The trajectory of an episode: turns, tool calls and observations."""

from typing import Literal

from attrs import field

from ale.types._record import record
from ale.types.message import Completion, Message, ToolSpec


@record
class Observation:
    """The result of one tool call."""

    call_id: str
    tool: str
    content: str
    """The exact text that the model gets."""
    role: Literal["tool", "user"] = "tool"
    """The role of its message; ``user`` for models without tool calls."""
    error: str | None = None
    """Why the call failed (unknown tool, invalid arguments, timeout, non-zero exit), else None."""
    exit_code: int | None = None
    timed_out: bool = False
    truncated: bool = False
    duration_s: float = 0.0

    def as_message(self) -> Message:
        """The message that carries this observation to the model."""
        call_id = self.call_id if self.role == "tool" else None
        return Message(role=self.role, content=self.content, tool_call_id=call_id)


@record
class Replaced:
    """A part of the conversation so far that the model was given otherwise from a turn on.

    Clients change what they have sent before: a clock in the system prompt, a reminder that is
    gone, results that are cut, an answer that is asked for again.
    """

    start: int
    """0-based, among the messages after the previous turn and its observations."""
    stop: int
    """The first message that stays."""
    messages: tuple[Message, ...] = ()
    """Those in its place; empty if it was taken out."""


@record
class Turn:
    """One completion and the observations of its tool calls.

    Each message is stored once: `prompt` holds only what was added since the previous turn's
    observations, unless `fresh_context` is set: a new conversation starts (the first turn, and
    the turn after a compaction). Where the model was given some of the earlier messages otherwise,
    `replaced` says which.
    """

    prompt: tuple[Message, ...] = ()
    fresh_context: bool = False
    completion: Completion
    observations: tuple[Observation, ...] = ()
    """One per tool call, in the order of the calls; calls that an agent parses from the content
    have observations too, with role ``user``."""
    duration_s: float = 0.0
    tools: tuple[ToolSpec, ...] = ()
    """The tool specifications sent with the request. Like the whole conversation, they are stored
    only with a `fresh_context`, and apply until the next one; see `Trajectory.tools`."""
    credited: bool = True
    """False for an answer that did nothing: one without a tool call, followed by a reminder or by
    the end. A chunk that consists of such turns gets a weight of 0, and the others are credited as
    if it were not there."""
    replaced: tuple[Replaced, ...] = ()
    """In order, without overlap, and never with a `fresh_context`."""

    @property
    def extends(self) -> bool:
        """True if the model was given the previous turn's whole conversation, and more."""
        return not self.fresh_context and not self.replaced


StopReason = Literal[
    "finished",
    "gave_up",
    "max_steps",
    "max_turns",
    "time_limit",
    "context",
    "agent_error",
]


@record
class Stop:
    """Why the agent stopped."""

    reason: StopReason
    detail: str = ""


@record
class Trajectory:
    """The turns of one episode, in order."""

    turns: tuple[Turn, ...] = ()
    stop: Stop = field(default=Stop(reason="finished"))

    def messages(self, upto: int | None = None) -> tuple[Message, ...]:
        """The conversation as the model saw it before turn `upto` (default: after the last turn).

        Args:
            upto: 0-based turn; the result then ends with that turn's prompt.
        """
        return tuple(_conversation(self.turns, len(self.turns) if upto is None else upto))

    def tools(self, upto: int | None = None) -> tuple[ToolSpec, ...]:
        """The tool specifications that the model was given in turn `upto` (default: the last).

        Empty for calls that are written as text, and in runs stored before they were recorded.
        """
        n = len(self.turns) if upto is None else upto + 1
        fresh = [turn for turn in self.turns[:n] if turn.fresh_context]
        return fresh[-1].tools if fresh else ()


def _conversation(turns: tuple[Turn, ...], upto: int) -> list[Message]:
    last = min(upto, len(turns) - 1)
    start = max((i for i in range(last + 1) if turns[i].fresh_context), default=0)
    made: list[Message] = []
    for i in range(start, last + 1):
        for change in reversed(turns[i].replaced):
            made[change.start : change.stop] = change.messages
        made += turns[i].prompt
        if i < upto:
            made.append(turns[i].completion.message)
            made += [observation.as_message() for observation in turns[i].observations]
    return made
