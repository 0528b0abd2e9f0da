"""Which answers were given to the same prompt: the conversation before each turn, as a digest.

Two turns have one prompt when the model saw the same tools and messages, text for text. The ids of
calls don't count: providers draw them at random; nor does the folder that a rollout worked in.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec
from attrs import frozen

from ale.types import Message, ToolSpec, Trajectory, Turn
from ale_rows.places import hidden

_SIZE = 16
"""Bytes of a digest; that two of 10^9 prompts share one by chance has a probability of 10^-21."""

_encode = msgspec.json.Encoder().encode


class ToldCall(msgspec.Struct, gc=False):
    """A call, as far as a prompt shows it."""

    name: str
    arguments: str


class ToldMessage(msgspec.Struct, gc=False):
    """A message."""

    role: str
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToldCall, ...] = ()


class ToldObservation(msgspec.Struct, gc=False):
    """What came of a call."""

    content: str
    role: str = "tool"


class ToldCompletion(msgspec.Struct, gc=False):
    """What the model answered."""

    message: ToldMessage


class ToldTurn(msgspec.Struct, gc=False):
    """A turn."""

    completion: ToldCompletion
    prompt: tuple[ToldMessage, ...] = ()
    observations: tuple[ToldObservation, ...] = ()
    fresh_context: bool = False


class Told(msgspec.Struct, gc=False):
    """A trajectory as the conversation that it is: faster to read than all of it."""

    turns: tuple[ToldTurn, ...] = ()


@frozen
class Answer:
    """What was said at one turn, and to what."""

    turn: int
    prompt: bytes
    """Digest of the conversation before it."""
    said: bytes
    """Digest of the answer."""
    empty: bool
    """Neither text nor a call: nothing that could be learned or unlearned."""


def answers(
    trajectory: Trajectory | Told,
    tools: Sequence[ToolSpec] | None = None,
    place: str | None = None,
) -> Iterator[Answer]:
    """Every turn's answer, in order.

    Args:
        place: a path that is the rollout's own, and counts the same as that of another.
    """
    beginning = [_encode(tools)]
    since = beginning
    turns: Sequence[Turn | ToldTurn] = trajectory.turns
    for number, turn in enumerate(turns):
        if turn.fresh_context:
            since = beginning
        message = turn.completion.message
        said = _content(message, place)
        before = _digest(*since, *(_content(each, place) for each in turn.prompt))
        yield Answer(number, before, _digest(said), not (message.content or message.tool_calls))
        shown = [(each.role, hidden(each.content, place)) for each in turn.observations]
        since = [before, said, _encode(shown)]


def _content(message: Message | ToldMessage, place: str | None) -> bytes:
    calls = [(call.name, hidden(call.arguments, place)) for call in message.tool_calls]
    reasoning = None if message.reasoning is None else hidden(message.reasoning, place)
    return _encode((message.role, hidden(message.content, place), reasoning, calls))


def _digest(*parts: bytes) -> bytes:
    """Of whole JSON, after a digest where there is one: no part can run into another."""
    return blake2b(b"".join(parts), digest_size=_SIZE).digest()
