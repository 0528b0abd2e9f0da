"""What of a request's conversation has passed before, so that only the rest is stored."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile

import msgspec
from attrs import define, frozen

from ale.types import Message, Replaced, ToolSpec

DECISIVE = 32
"""Characters of an answer that two conversations do not have in common by chance."""
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def same(one: Message, other: Message) -> bool:
    """The same message but for its reasoning, which most clients don't send back."""
    return (
        one.content == other.content
        and one.role == other.role
        and one.tool_calls == other.tool_calls
        and one.tool_call_id == other.tool_call_id
    )


def likeness(message: Message) -> Hashable:
    """Equal for two forms of one message: clients strip spaces and thoughts, and write arguments
    anew."""
    content = message.content
    if message.role == "assistant":
        content = _THOUGHT.sub("", content, count=1)
    calls = tuple((call.id, call.name, _canonical(call.arguments)) for call in message.tool_calls)
    return message.role, content.strip(), calls, message.tool_call_id


def _canonical(arguments: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments.encode("utf-8", "surrogatepass")


@frozen(kw_only=True)
class Difference:
    """A conversation, told from another one."""

    replaced: tuple[Replaced, ...]
    prompt: tuple[Message, ...]
    """What follows."""
    kept: int
    """Number of the other's messages that are in it."""


def difference(base: Sequence[Message], asked: Sequence[Message]) -> Difference:
    """How `asked` is made of `base`."""
    n = sum(1 for _ in takewhile(bool, map(same, base, asked)))
    if n == len(base):
        return Difference(replaced=(), prompt=tuple(asked[n:]), kept=n)
    replaced: list[Replaced] = []
    at, to = n, n
    pairs = [(n + i, n + j) for i, j in _aligned(base[n:], asked[n:])]
    for i, j in pairs:
        if same(base[i], asked[j]):
            if (i, j) != (at, to):
                replaced.append(_replaced(at, i, asked[to:j]))
        else:  # another form of the same message
            replaced.append(_replaced(at, i + 1, asked[to : j + 1]))
        at, to = i + 1, j + 1
    if at < len(base):
        replaced.append(_replaced(at, len(base), ()))
    return Difference(replaced=tuple(replaced), prompt=tuple(asked[to:]), kept=n + len(pairs))


def _replaced(start: int, stop: int, messages: Sequence[Message]) -> Replaced:
    return Replaced(start=start, stop=stop, messages=tuple(messages))


def applied(base: Sequence[Message], difference: Difference) -> tuple[Message, ...]:
    """The conversation that `difference` tells from `base`."""
    made = list(base)
    for change in reversed(difference.replaced):
        made[change.start : change.stop] = change.messages
    return (*made, *difference.prompt)


def _aligned(base: Sequence[Message], asked: Sequence[Message]) -> list[tuple[int, int]]:
    """The places of messages that both have, as many as are in the same order in both.

    Of equal messages the first is paired with the first, so that the time is that of sorting.
    """
    places = {key: j for j, key in enumerate(_numbered(asked))}
    found = [(i, places[key]) for i, key in enumerate(_numbered(base)) if key in places]
    ends: list[int] = []  # by length of a growing sequence: its least last place
    last: list[int] = []
    before: list[int] = []
    for n, (_, j) in enumerate(found):
        at = bisect_left(ends, j)
        before.append(last[at - 1] if at else -1)
        ends[at : at + 1], last[at : at + 1] = [j], [n]
    made, n = [], last[-1] if last else -1
    while n >= 0:
        made.append(found[n])
        n = before[n]
    return made[::-1]


def _numbered(messages: Sequence[Message]) -> Iterator[Hashable]:
    seen: Counter[Hashable] = Counter()
    for message in messages:
        key = likeness(message)
        yield key, seen[key]
        seen[key] += 1


@define(eq=False, slots=False)
class Sought:
    """The conversation of a request, to be found among those before."""

    messages: tuple[Message, ...]
    tools: bytes

    @cached_property
    def answers(self) -> list[int]:
        """Where it has messages of the assistant."""
        return [i for i, message in enumerate(self.messages) if message.role == "assistant"]

    @cached_property
    def likenesses(self) -> Mapping[int, Hashable]:
        """Likeness of each of these, by its place: a request is looked for in many sessions."""
        return {i: likeness(self.messages[i]) for i in self.answers}

    @cached_property
    def ends(self) -> Mapping[int, int]:
        """Hashes of the conversation up to each of these, by their places."""
        return dict(hashes(self.messages, self.tools))


def hashes(messages: Sequence[Message], tools: bytes) -> Iterator[tuple[int, int]]:
    """The hash of a conversation up to each answer in it, with the answer's place."""
    made = hash(tools)
    for i, message in enumerate(messages):
        own = (message.role, message.content, message.tool_calls, message.tool_call_id)
        made = hash((made, own))
        if message.role == "assistant":
            yield i, made


def tools_key(tools: Sequence[ToolSpec]) -> bytes:
    """Equal for equal tools."""
    return msgspec.json.encode(tools, order="sorted") if tools else b""
