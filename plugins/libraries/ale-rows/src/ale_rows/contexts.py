"""Digests of the conversation before each turn, to find answers to the same prompt.

Two turns have the same prompt when the model saw the same tools and messages. Ids of calls are
ignored, since providers draw them at random, and so is the working directory of the rollout.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec
from attrs import frozen

from ale.types import Message, Replaced, ToolSpec, Trajectory, Turn
from ale_rows.workdirs import without_workdir

_SIZE = 16
"""Bytes of a digest; among 10^9 prompts, a collision has a probability of about 10^-21."""

_encode = msgspec.json.Encoder().encode


class SlimCall(msgspec.Struct, gc=False):
    """A call, without its id."""

    name: str
    arguments: str


class SlimMessage(msgspec.Struct, gc=False):
    """A message."""

    role: str
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[SlimCall, ...] = ()


class SlimObservation(msgspec.Struct, gc=False):
    """The observation of a call."""

    content: str
    role: str = "tool"


class SlimCompletion(msgspec.Struct, gc=False):
    """An answer of the model."""

    message: SlimMessage


class SlimReplaced(msgspec.Struct, gc=False):
    """Messages of the conversation that a turn was given otherwise."""

    start: int
    stop: int
    messages: tuple[SlimMessage, ...] = ()


class SlimTurn(msgspec.Struct, gc=False):
    """A turn."""

    completion: SlimCompletion
    prompt: tuple[SlimMessage, ...] = ()
    observations: tuple[SlimObservation, ...] = ()
    fresh_context: bool = False
    tools: tuple[ToolSpec, ...] = ()
    replaced: tuple[SlimReplaced, ...] = ()


class SlimTrajectory(msgspec.Struct, gc=False):
    """A trajectory with only its messages: faster to read than all of it."""

    turns: tuple[SlimTurn, ...] = ()


@frozen
class Answer:
    """The answer of one turn, and its prompt."""

    turn: int
    prompt: bytes
    """Digest of the conversation before the turn."""
    content: bytes
    """Digest of the answer."""
    empty: bool
    """The answer has neither text nor a call: there is nothing to learn from."""


def answers(
    trajectory: Trajectory | SlimTrajectory,
    tools: Sequence[ToolSpec] | None = None,
    workdir: str | None = None,
) -> Iterator[Answer]:
    """Every turn's answer, in order.

    Args:
        tools: override the recorded tools.
        workdir: the rollout's own working directory, treated as equal to that of other rollouts.
    """
    since: list[bytes] = []
    turns: Sequence[Turn | SlimTurn] = trajectory.turns
    said = _Said(workdir) if any(turn.replaced for turn in turns) else None
    for number, turn in enumerate(turns):
        if number == 0 or turn.fresh_context:
            offered = _encode(turn.tools if tools is None else tools).decode()
            head = [without_workdir(offered, workdir).encode()]
            since = head
        prompt = [_content(each, workdir) for each in turn.prompt]
        if said is not None:
            said.ask(turn)
            if turn.replaced:  # as a new conversation that has all of it
                since, prompt = head, said.messages
        message = turn.completion.message
        content = _content(message, workdir)
        before = _digest(*since, *prompt)
        empty = not (message.content or message.tool_calls)
        yield Answer(number, before, _digest(content), empty)
        observed = [
            (each.role, without_workdir(each.content, workdir)) for each in turn.observations
        ]
        since = [before, content, _encode(observed)]
        if said is not None:
            said.answer(turn)


class _Said:
    """The conversation so far, for turns that replace a part of it."""

    def __init__(self, workdir: str | None) -> None:
        self.messages: list[bytes] = []
        self._workdir = workdir

    def ask(self, turn: Turn | SlimTurn) -> None:
        if turn.fresh_context:
            self.messages = []
        changes: Sequence[Replaced | SlimReplaced] = turn.replaced
        for change in reversed(changes):
            given = [_content(each, self._workdir) for each in change.messages]
            self.messages[change.start : change.stop] = given
        self.messages += [_content(each, self._workdir) for each in turn.prompt]

    def answer(self, turn: Turn | SlimTurn) -> None:
        self.messages.append(_content(turn.completion.message, self._workdir))
        results = [SlimMessage(each.role, each.content) for each in turn.observations]
        self.messages += [_content(each, self._workdir) for each in results]


def _content(message: Message | SlimMessage, workdir: str | None) -> bytes:
    calls = [(call.name, without_workdir(call.arguments, workdir)) for call in message.tool_calls]
    reasoning = None if message.reasoning is None else without_workdir(message.reasoning, workdir)
    return _encode((message.role, without_workdir(message.content, workdir), reasoning, calls))


def _digest(*parts: bytes) -> bytes:
    """Digest of a digest (if any) and complete JSON values, which can't run into one another."""
    return blake2b(b"".join(parts), digest_size=_SIZE).digest()
