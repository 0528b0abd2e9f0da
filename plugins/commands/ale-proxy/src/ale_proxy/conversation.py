"""Requests and answers of one session as turns, each message once.

A session has many conversations: side requests, sub-agents, answers that are asked for again. They
are kept as a tree of turns, in which each turn continues the one before it in its conversation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from attrs import define, frozen

from ale.types import Completion, Message, Observation, ToolSpec, Turn, replace
from ale_proxy.apis import Answered, Asked, UnreadableError
from ale_proxy.matching import (
    DECISIVE,
    Difference,
    Sought,
    applied,
    difference,
    hashes,
    likeness,
    same,
    tools_key,
)

MOST_ANSWERS = 4
"""The last answers of a request that are looked up, if its whole conversation is not known."""
MOST_EQUAL = 8
"""Turns with the same answer that are compared with a request."""


@define(eq=False)
class _Node:
    turn: Turn
    """As it continues `after`."""
    after: int | None
    """Number of the turn that it continues; None where it begins a conversation."""
    saw_results: bool
    """True if the observations of that turn were known when this one was recorded."""
    messages: tuple[Message, ...]
    """The conversation of its request."""
    tools: tuple[ToolSpec, ...]
    key: bytes
    alone: bool = False

    def base(self, *, results: bool = True) -> tuple[Message, ...]:
        """What a request that continues it begins with."""
        observed = self.turn.observations if results else ()
        answer = self.turn.completion.message
        return (*self.messages, answer, *(each.as_message() for each in observed))


@frozen(kw_only=True)
class Match:
    """The turn that a request continues."""

    number: int
    at: int
    """Where in the request its answer is."""
    exact: bool
    kept: int
    """How many messages of its conversation the request has."""


class Turns:
    """The turns of one session so far.

    What `Trajectory.messages` rebuilds for a turn is the conversation of its request.
    """

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._ends: dict[int, list[int]] = defaultdict(list)
        """Turns by the hash of their conversation with its answer."""
        self._answers: dict[object, list[int]] = defaultdict(list)
        """Turns by the likeness of their answer."""
        self._followed: set[int | None] = set()
        """Turns that another one continues."""
        self._lines: dict[object, int] = {}
        """The last turn by the tools and the first message of its conversation."""
        self._by_response: dict[str, int] = {}
        self._ordered: tuple[list[int], list[Turn]] | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def turns(self) -> list[Turn]:
        """All turns as a trajectory has them: those of one conversation together, and the
        conversation that was answered last at the end."""
        return self._in_order()[1]

    def main(self) -> tuple[int, tuple[Message, ...], tuple[ToolSpec, ...]] | None:
        """The conversation with the most turns: number, messages and tools of its first request."""
        first: list[int] = []
        for number, node in enumerate(self._nodes):
            first.append(number if node.after is None else first[node.after])
        if not first:
            return None
        sizes = Counter(first)
        number = max(sizes, key=lambda each: (sizes[each], -each))
        return number, self._nodes[number].messages, self._nodes[number].tools

    @property
    def order(self) -> list[int]:
        """For each of `turns`, the place at which it was answered."""
        return self._in_order()[0]

    def raw(self, number: int) -> tuple[Turn, int | None]:
        """A turn as it continues another one, and the number of that."""
        return self._nodes[number].turn, self._nodes[number].after

    def restore(self, number: int, turn: Turn, after: int | None, response: str | None) -> None:
        """Append a turn that `raw` gave, or give one its observations; in the order of `add`."""
        if number < len(self._nodes):
            self._nodes[number].turn = turn
            return
        if turn.fresh_context or after is None or not 0 <= after < number:
            self._append(turn, None, turn.prompt, turn.tools)
        else:
            before = self._nodes[after]
            told = Difference(replaced=turn.replaced, prompt=turn.prompt, kept=0)
            self._append(turn, after, applied(before.base(), told), before.tools)
        if response is not None:
            self._by_response[response] = len(self._nodes) - 1

    def knows(self, response: str) -> bool:
        """Whether a request may continue the answer with this id."""
        return response in self._by_response

    def match(self, sought: Sought) -> Match | None:
        """The turn that a request continues: the one with the longest conversation.

        None where it continues none, since it has no answer of these turns.
        """
        return self._longest(sought)

    def is_last(self, match: Match) -> bool:
        """True if no turn continues this one yet."""
        return match.number not in self._followed

    def continues_text(self, messages: Sequence[Message]) -> bool:
        """Whether a prompt of completions begins with an earlier one and its answer."""
        text = messages[0].content if messages else ""
        return any(
            text.startswith(node.messages[0].content + node.turn.completion.message.content)
            for node in reversed(self._nodes)
            if node.alone and node.messages
        )

    def add(
        self,
        messages: tuple[Message, ...],
        asked: Asked,
        answers: Sequence[Answered],
        duration_s: float,
    ) -> list[int]:
        """Append a turn for each answer.

        Args:
            messages: the conversation as the model was given it.
            asked: its request.
            answers: to it, at least one.
            duration_s: from the request to the end of its answers, seconds.

        Returns:
            the numbers of the turns that are new, or have observations now.

        Raises:
            UnreadableError: it continues a response that this session has not seen.
        """
        before = len(self._nodes)
        changed: list[int] = []
        after, told = None, Difference(replaced=(), prompt=messages, kept=0)
        if asked.previous is not None:
            messages = self._continued(messages, asked.previous)
        if not asked.alone:
            after, changed, told = self._placed(Sought(messages, tools_key(asked.tools)))
        for answered in answers:
            own = told.prompt if answered.messages is None else answered.messages
            turn = Turn(
                prompt=own,
                fresh_context=after is None,
                replaced=told.replaced,
                completion=answered.completion,
                duration_s=round(duration_s, 6),
                tools=asked.tools if after is None else (),
            )
            whole = own if after is None else applied(self._nodes[after].base(), told)
            self._append(turn, after, whole, asked.tools, alone=asked.alone)
            if answered.id is not None:
                self._by_response[answered.id] = len(self._nodes) - 1
        return [*changed, *range(before, len(self._nodes))]

    def _continued(self, messages: tuple[Message, ...], previous: str) -> tuple[Message, ...]:
        """The whole conversation, of which the server has kept a part."""
        if previous not in self._by_response:
            raise UnreadableError("it continues a response that this session has not seen")
        # Instructions are not kept by the server: those of the request hold.
        system = [message for message in messages[:1] if message.role == "system"]
        kept = self._nodes[self._by_response[previous]].base(results=False)
        kept = tuple(each for each in kept if each.role != "system" or not system)
        return (*system, *kept, *messages[len(system) :])

    def _placed(self, sought: Sought) -> tuple[int | None, list[int], Difference]:
        """What a request continues, the turns with new observations, and how it differs."""
        best: tuple[int, list[int], Difference] | None = None
        for match in self._candidates(sought):
            node = self._nodes[match.number]
            changed = [match.number] if self._observe(node, sought.messages, match.at) else []
            base = node.base()
            told = difference(base, sought.messages)
            # Less than half of it: to tell it whole is as short, and plainer.
            if 2 * told.kept >= len(base) and (best is None or told.kept > best[2].kept):
                best = (match.number, [*(best[1] if best else ()), *changed], told)
            elif changed:
                node.turn = replace(node.turn, observations=())
        if best is None:
            return None, [], Difference(replaced=(), prompt=sought.messages, kept=0)
        return best

    def _candidates(self, sought: Sought) -> Iterator[Match]:
        match = self._longest(sought, same_tools=True)
        if match is not None:
            yield match
        if not sought.answers or (match is not None and match.exact):
            return
        # A judge or a summary, whose requests have the history and not the answers before.
        line = self._lines.get(self._line(sought.messages, sought.tools))
        if line is not None and (match is None or line != match.number):
            yield Match(number=line, at=len(sought.messages), exact=False, kept=0)

    def _observe(self, node: _Node, messages: Sequence[Message], at: int) -> bool:
        """Whether the messages after an answer give its turn the observations that it lacks."""
        if node.turn.observations:
            return False
        found = _observations(node.turn.completion, messages[at + 1 :])
        if found:
            node.turn = replace(node.turn, observations=found)
            self._ordered = None
        return bool(found)

    def _longest(self, sought: Sought, *, same_tools: bool = False) -> Match | None:
        exact = self._exact(sought)
        if exact is not None and exact.at == sought.answers[-1]:
            return exact
        like = self._like(sought, same_tools=same_tools)
        if exact is None or (like is not None and like.kept > exact.kept):
            return like
        return exact

    def _exact(self, sought: Sought) -> Match | None:
        for at in reversed(sought.answers):
            for number in reversed(self._ends.get(sought.ends[at], ())):
                node = self._nodes[number]
                if len(node.messages) == at and node.key == sought.tools:
                    given = (*node.messages, node.turn.completion.message)
                    if all(map(same, given, sought.messages)):
                        return Match(number=number, at=at, exact=True, kept=at + 1)
        return None

    def _like(self, sought: Sought, *, same_tools: bool = False) -> Match | None:
        known = [i for i in sought.answers if sought.likenesses[i] in self._answers]
        for at in known[: -MOST_ANSWERS - 1 : -1]:
            numbers = self._answers[sought.likenesses[at]]
            if same_tools:
                numbers = [n for n in numbers if self._nodes[n].key == sought.tools]
            found = [self._compared(number, at, sought) for number in numbers[-MOST_EQUAL:]]
            alike = [match for match in found if match.kept]
            if alike:
                return max(alike, key=attrgetter("kept", "number"))
        return None

    def _compared(self, number: int, at: int, sought: Sought) -> Match:
        """The match with one turn, which has kept nothing if too little speaks for it."""
        node = self._nodes[number]
        base = node.base(results=False)
        kept = difference(base, sought.messages).kept
        answer = node.turn.completion.message
        shorter = min(_said(base), _said(sought.messages[: at + 1]))
        # A system prompt says nothing, whether it is the same one or has another clock in it.
        system = {message.content for message in sought.messages if message.role == "system"}
        common = kept - sum(each.role == "system" and each.content in system for each in base)
        sure = answer.tool_calls or len(answer.content) >= DECISIVE or 2 * common > shorter
        return Match(number=number, at=at, exact=False, kept=kept if sure else 0)

    def _append(
        self,
        turn: Turn,
        after: int | None,
        messages: tuple[Message, ...],
        tools: tuple[ToolSpec, ...],
        *,
        alone: bool = False,
    ) -> None:
        number, key = len(self._nodes), tools_key(tools)
        saw = after is not None and bool(self._nodes[after].turn.observations)
        node = _Node(turn, after, saw, messages, tools, key, alone)
        self._nodes.append(node)
        self._followed.add(after)
        self._ordered = None
        if alone:
            return
        *_, (_, end) = hashes(node.base(results=False), key)
        self._ends[end].append(number)
        self._answers[likeness(turn.completion.message)].append(number)
        self._lines[self._line(messages, key)] = number

    def _line(self, messages: Sequence[Message], key: bytes) -> object:
        return key, likeness(messages[0]) if messages else None

    def _in_order(self) -> tuple[list[int], list[Turn]]:
        if self._ordered is None:
            order = list(self._depth_first())
            self._ordered = order, list(self._told(order))
        return self._ordered

    def _depth_first(self) -> Iterator[int]:
        """The turns of each conversation together; among several, the one that ended first."""
        last = list(range(len(self._nodes)))
        below: dict[int | None, list[int]] = defaultdict(list)
        for number in reversed(range(len(self._nodes))):
            after = self._nodes[number].after
            below[after].append(number)
            if after is not None:
                last[after] = max(last[after], last[number])
        left = sorted(below[None], key=last.__getitem__, reverse=True)
        while left:
            number = left.pop()
            yield number
            left += sorted(below[number], key=last.__getitem__, reverse=True)

    def _told(self, order: Iterable[int]) -> Iterator[Turn]:
        """The turns, each told from the one before it in this order."""
        before: int | None = None
        for number in order:
            node = self._nodes[number]
            yield node.turn if node.after is None else self._from(node, before)
            before = number

    def _from(self, node: _Node, before: int | None) -> Turn:
        assert before is not None, "a turn that continues another one is not the first"
        other = self._nodes[before]
        if before == node.after and node.saw_results == bool(other.turn.observations):
            return node.turn
        base = other.base()
        told = difference(base, node.messages)
        if other.key != node.key or 2 * told.kept < len(base):
            return replace(
                node.turn,
                prompt=node.messages,
                fresh_context=True,
                replaced=(),
                tools=node.tools,
            )
        return replace(node.turn, prompt=told.prompt, replaced=told.replaced)


def _said(messages: Sequence[Message]) -> int:
    return sum(message.role != "system" for message in messages)


def _observations(completion: Completion, new: Sequence[Message]) -> tuple[Observation, ...]:
    """The results of all calls among those at the beginning of what is new, in the calls' order.

    None of them where one is missing, since observations belong to calls by their places.
    """
    calls = completion.message.tool_calls
    results: dict[str | None, Message] = {}
    for message in new:
        if message.role != "tool":
            break
        results.setdefault(message.tool_call_id, message)
    if len({call.id for call in calls}) < len(calls) or any(c.id not in results for c in calls):
        return ()
    return tuple(
        Observation(call_id=call.id, tool=call.name, content=results[call.id].content)
        for call in calls
    )
