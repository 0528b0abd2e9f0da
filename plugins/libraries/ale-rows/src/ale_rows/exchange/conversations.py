"""A conversation given as messages, as an episode."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec
from attrs import define, field

from ale.types import Completion, Episode, Message, Observation, Trajectory, Turn
from ale_rows.chat import record
from ale_rows.exchange.items import LeftOutError
from ale_rows.rows import ChatMessage, ChatTool, ChatTools


@define
class Read:
    """One imported conversation, and which of its answers to learn from."""

    messages: list[ChatMessage] = field(factory=list)
    learn: list[bool] = field(factory=list)
    tools: ChatTools = None

    def add(self, message: ChatMessage, *, learn: bool = True) -> None:
        """Add a message; `learn` applies to answers."""
        self.messages.append(message)
        self.learn.append(learn and message.role == "assistant")

    def turns(self) -> tuple[Turn, ...]:
        """The turns: answers to learn from. Other answers are part of their prompts."""
        return tuple(self._turns())

    def _turns(self) -> Iterator[Turn]:
        prompt: list[Message] = []
        position, first = 0, True
        while position < len(self.messages):
            message = record(self.messages[position])
            learn = self.learn[position]
            position += 1
            if not learn:
                prompt.append(message)
                continue
            observed = self._observed(message, position)
            position += len(observed)
            yield Turn(
                prompt=tuple(prompt),
                fresh_context=first,
                completion=Completion(
                    message=message,
                    finish_reason="tool_calls" if message.tool_calls else "stop",
                    forced=True,
                ),
                observations=tuple(observed),
            )
            prompt, first = [], False

    def _observed(self, message: Message, position: int) -> list[Observation]:
        """The observations of an answer's calls, as far as the messages are in their order."""
        found: list[Observation] = []
        for call, shown in zip(message.tool_calls, self.messages[position:], strict=False):
            if shown.role != "tool" or shown.tool_call_id not in (None, call.id):
                break
            found.append(Observation(call_id=call.id, tool=call.name, content=shown.content))
        return found


def episode_of(read: Read, episode_id: str, reward: float | None) -> Episode:
    """The conversation as an episode with forced (not sampled) answers.

    Its task id is derived from the first prompt: conversations with the same prompt are one task.

    Raises:
        LeftOutError: there is no answer to learn from.
    """
    turns = read.turns()
    if not turns:
        raise LeftOutError("no answer of an assistant to learn from")
    return Episode(
        id=episode_id,
        task_id=task_of(turns[0].prompt),
        reward=reward,
        trajectory=Trajectory(turns=turns),
    )


def task_of(prompt: Sequence[Message]) -> str:
    """A task id that is the same for equal prompts."""
    encoded = msgspec.json.encode([(message.role, message.content) for message in prompt])
    return f"imported-{blake2b(encoded, digest_size=8).hexdigest()}"


def chat_tools_of(listed: object) -> ChatTools:
    """Tools of an imported item: a list, or JSON text of one.

    Raises:
        LeftOutError: they are neither.
    """
    try:
        if isinstance(listed, str):
            listed = msgspec.json.decode(listed) if listed.strip() else None
        if not listed:
            return None
        assert isinstance(listed, list)
        whole = [each if "function" in each else {"function": each} for each in listed]
        return msgspec.convert(tuple(whole), tuple[ChatTool, ...])
    except (msgspec.MsgspecError, TypeError, AssertionError) as error:
        raise LeftOutError("tools that are not a list of functions") from error
