"""The conversations of an episode as a tree: which turn each of them continues, and why it begins.

An episode is a line of turns. A turn that does not continue the one before it begins a branch:
another attempt at an earlier turn, a compacted conversation, a sub-agent, a request beside. Stored
is what the model was given; the tree is computed from that.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from ale.text import shorten
from ale.types import Episode, Message, Turn

Kind = Literal["first", "own", "again", "compacted", "called", "other"]
"""Why a branch begins: the episode does; the agent's own turns follow replayed ones; an earlier
turn is continued again; the conversation was compacted; a call of a tool gave it its words;
another conversation."""
_TITLE = 160
_PROOF = 16
"""Characters of a call's argument that prove that a conversation comes from it."""

_Key = tuple[Any, ...]


class Branch(NamedTuple):
    """Turns that continue each other."""

    first: int
    last: int
    after: int | None
    """The turn that it continues, or while which it began; None for the first."""
    kind: Kind
    title: str
    """The last words of its first request; before them the tool whose call it is, or the start."""


def branches(episode: Episode) -> list[Branch]:
    """The branches in the order of their turns; empty if there is but one."""
    turns = episode.turns
    forced = _forced(turns)
    if not forced and all(turn.extends for turn in turns[1:]):
        return []
    begins = [*_Tree(episode).begins(forced)]
    ends = [each.first - 1 for each in begins[1:]] + [len(turns) - 1]
    made = [branch._replace(last=end) for branch, end in zip(begins, ends, strict=True)]
    return made if len(made) > 1 else []


def _forced(turns: Sequence[Turn]) -> int:
    """How many turns at the beginning were replayed; 0 if none or all of them."""
    return next((i for i, turn in enumerate(turns) if not turn.completion.forced), 0)


def _order(episode: Episode) -> Sequence[int]:
    """For each turn, the place at which it was answered: see `ale proxy`."""
    told = episode.metadata.get("answered_as")
    turns = range(len(episode.turns))
    if isinstance(told, list | tuple) and all(type(each) is int for each in told):
        return told if sorted(told) == [*turns] else turns
    return turns


class _Tree:
    """Reads turns in their order."""

    def __init__(self, episode: Episode) -> None:
        self._turns = episode.turns
        self._start = episode.start
        self._order = _order(episode)
        self._messages: list[tuple[_Key, int | None]] = []
        """The conversation up to here: each message, and the turn that it is the answer of."""
        self._hashes: list[int] = []
        """A hash of each beginning of it."""
        self._ends: dict[int, int] = {}
        """Turns by the hash of their conversation with their answer."""
        self._heads: list[tuple[_Key, ...]] = []
        """By turn, the beginning of its conversation: see `_head`."""

    def begins(self, forced: int) -> Iterator[Branch]:
        """The branches, without where they end."""
        for number, turn in enumerate(self._turns):
            found = self._begun(number, turn)
            if found is None and forced and number == forced:
                found = Branch(number, 0, number - 1, "own", "")
            self._answered(number, turn)
            if found is not None:
                yield found

    def _begun(self, number: int, turn: Turn) -> Branch | None:
        """The branch that a turn begins; None if it continues the turn before."""
        if number and not turn.fresh_context:
            after = self._continued(turn)
            self._heads.append(self._heads[-1])
            if after is None:
                return Branch(number, 0, number - 1, "compacted", _title(turn.prompt))
            title = _title(turn.prompt)
            return None if after == number - 1 else Branch(number, 0, after, "again", title)
        self._messages, self._hashes = [], []
        self._add(*turn.prompt)
        head = _head(turn.prompt)
        found = self._of_fresh(number, turn, head) if number else None
        self._heads.append(head)
        first = Branch(0, 0, None, "first", self._start and f"start {self._start}")
        return found if number else first

    def _continued(self, turn: Turn) -> int | None:
        """The last turn whose answer is still in the conversation."""
        for change in reversed(turn.replaced):
            new = [(_key(message), None) for message in change.messages]
            self._messages[change.start : change.stop] = new
        if turn.replaced:
            kept, self._messages, self._hashes = self._messages, [], []
            for key, of in kept:
                self._append(key, of)
        self._add(*turn.prompt)
        return max((of for _, of in self._messages if of is not None), default=None)

    def _of_fresh(self, number: int, turn: Turn, head: tuple[_Key, ...]) -> Branch | None:
        title = _title(turn.prompt)
        for n, end in reversed([*enumerate(self._hashes)]):
            if (after := self._ends.get(end)) is not None:
                self._name_answers(after, n)
                if after == number - 1:
                    return None
                return Branch(number, 0, after, "again", _title(turn.prompt[n + 1 :]) or title)
        before = [n for n in range(number) if self._order[n] < self._order[number]] or [0]
        same = [n for n in before if self._heads[n] == head]
        if same:
            return Branch(number, 0, max(same, key=self._order.__getitem__), "compacted", title)
        by_time = sorted(before, key=self._order.__getitem__, reverse=True)
        for n in by_time:
            if tool := _caller(self._turns[n], turn.prompt):
                return Branch(number, 0, n, "called", f"{tool}: {title}")
        return Branch(number, 0, by_time[0], "other", title)

    def _name_answers(self, after: int, at: int) -> None:
        """Say which message is the answer of the turn that is continued."""
        key, _ = self._messages[at]
        self._messages[at] = (key, after)

    def _answered(self, number: int, turn: Turn) -> None:
        self._add(turn.completion.message, of=number)
        self._ends.setdefault(self._hashes[-1], number)
        self._add(*(each.as_message() for each in turn.observations))

    def _add(self, *messages: Message, of: int | None = None) -> None:
        for message in messages:
            self._append(_key(message), of)

    def _append(self, key: _Key, of: int | None) -> None:
        self._messages.append((key, of))
        self._hashes.append(hash((self._hashes[-1] if self._hashes else 0, key)))


def _key(message: Message) -> _Key:
    """The parts of a message that make it the same as another one, whatever a client left out."""
    calls = tuple((call.name, call.arguments) for call in message.tool_calls)
    return message.role, message.content, calls


def _head(prompt: Sequence[Message]) -> tuple[_Key, ...]:
    """The instructions and the first message of somebody: they stay in a compacted conversation."""
    first = next((i for i, message in enumerate(prompt) if message.role != "system"), len(prompt))
    return tuple(map(_key, prompt[: first + 1]))


def _title(prompt: Sequence[Message]) -> str:
    """The last words of somebody but the system."""
    said = (message.content for message in reversed(prompt) if message.role != "system")
    return shorten(next(filter(None, said), ""), _TITLE)


def _caller(turn: Turn, prompt: Sequence[Message]) -> str | None:
    """The tool of which a call gave a conversation its words."""
    said = "\n".join(message.content for message in prompt if message.role == "user")
    for call in turn.completion.message.tool_calls:
        if any(len(text) >= _PROOF and text in said for text in _texts(call.arguments)):
            return call.name
    return None


def _texts(arguments: str) -> Iterator[str]:
    """The texts among the arguments of a call."""
    try:
        made = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return
    if isinstance(made, dict):
        yield from (value for value in made.values() if isinstance(value, str))
