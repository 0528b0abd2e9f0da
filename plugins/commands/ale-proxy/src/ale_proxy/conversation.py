"""Requests and answers of one session as turns, each message once."""

from collections.abc import Mapping, Sequence

from ale.types import (
    Completion,
    Message,
    Observation,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    replace,
)
from ale_proxy.apis import Answered, Asked, UnreadableError


class Turns:
    """The turns of one session so far.

    What `Trajectory.messages` rebuilds from them for a turn is the conversation of its request.

    Args:
        turns: those before.
        responses: the numbers of turns that a request may continue, by the ids of their answers.
    """

    def __init__(
        self, turns: Sequence[Turn] = (), responses: Mapping[str, int] | None = None
    ) -> None:
        before = Trajectory(turns=tuple(turns))
        self.turns = list(turns)
        self._messages = before.messages()
        """The last request's conversation and its answer."""
        self._tools: tuple[ToolSpec, ...] = before.tools()
        self._by_response: dict[str, tuple[Message, ...]] = {
            id: (*before.messages(n), turns[n].completion.message)
            for id, n in (responses or {}).items()
        }

    def add(
        self, messages: tuple[Message, ...], asked: Asked, answered: Answered, duration_s: float
    ) -> None:
        """Append a turn.

        Args:
            messages: the conversation as the model was given it.
            asked: its request.
            answered: its answer.
            duration_s: from the request to the end of its answer, seconds.

        Raises:
            UnreadableError: it continues a response that this session has not seen.
        """
        if asked.previous is not None:
            messages = self._continued(messages, asked.previous)
        turn = self._turn(messages, asked, answered.completion)
        self.turns.append(replace(turn, duration_s=round(duration_s, 6)))
        self._messages = (*messages, answered.completion.message)
        self._tools = asked.tools
        if answered.id is not None:
            self._by_response[answered.id] = self._messages

    def _continued(self, messages: tuple[Message, ...], previous: str) -> tuple[Message, ...]:
        """The whole conversation, of which the server has kept a part."""
        if previous not in self._by_response:
            raise UnreadableError("it continues a response that this session has not seen")
        # Instructions are not kept by the server: those of the request hold.
        system = [message for message in messages[:1] if message.role == "system"]
        kept = [each for each in self._by_response[previous] if each.role != "system" or not system]
        return (*system, *kept, *messages[len(system) :])

    def _turn(self, messages: tuple[Message, ...], asked: Asked, completion: Completion) -> Turn:
        n = len(self._messages)
        continues = n > 0 and not asked.alone and asked.tools == self._tools
        if continues and len(messages) > n and all(map(_same, self._messages, messages[:n])):
            new = messages[n:]
            found = _observations(self._messages[-1].tool_calls, new)
            if found is not None:
                self.turns[-1] = replace(self.turns[-1], observations=found)
                return Turn(prompt=new[len(found) :], completion=completion)
        return Turn(prompt=messages, fresh_context=True, completion=completion, tools=asked.tools)


def _same(one: Message, other: Message) -> bool:
    """The same message but for its reasoning, which most clients don't send back."""
    return replace(one, reasoning=None) == replace(other, reasoning=None)


def _observations(
    calls: Sequence[ToolCall], new: Sequence[Message]
) -> tuple[Observation, ...] | None:
    """The results at the beginning of what is new; None where they are not those of the calls, all
    and in their order, and so have no place in the turn that made these."""
    n_results = next((i for i, message in enumerate(new) if message.role != "tool"), len(new))
    results = new[:n_results]
    if [message.tool_call_id for message in results] != [call.id for call in calls]:
        return () if not results else None
    return tuple(
        Observation(call_id=call.id, tool=call.name, content=message.content)
        for call, message in zip(calls, results, strict=True)
    )
