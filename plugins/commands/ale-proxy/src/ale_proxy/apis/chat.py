"""OpenAI's chat completions, as vLLM, SGLang, Ollama, LM Studio and others have them too."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ale.types import Message, ToolCall
from ale_openai_wire import completion, messages, read_answer, samples_as_model
from ale_openai_wire.response import FUNCTION_CALL, Answer
from ale_openai_wire.stream import Assembly, BrokenStreamError, EventReader, StreamedError
from ale_proxy.apis.api import (
    Answered,
    AnswerReader,
    Asked,
    UnreadableError,
    WholeBody,
    items,
    mapping,
    n_of,
    read_event,
    specs,
    text_of,
    unchanged_tail,
)

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class ChatApi:
    """``/v1/chat/completions``."""

    name = "chat completions"
    token_fields: Mapping[str, Any] = {"logprobs": True, "return_token_ids": True}

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """The conversation, with tools, of a request."""
        wire = items(body.get("messages"), "messages")
        return Asked(
            messages=tuple(_message(mapping(each, "a message")) for each in wire),
            tools=specs(body.get("tools")),
            model=str(body.get("model") or ""),
            stream=bool(body.get("stream")),
            exact=samples_as_model(body),
            n=n_of(body),
        )

    def reader(self, asked: Asked) -> AnswerReader:
        """For the answer to one request."""
        if not asked.stream:
            return _Whole()
        return _Stream() if asked.n == 1 else _Streams()

    def with_head(
        self, body: Mapping[str, Any], before: Sequence[Message], after: Sequence[Message]
    ) -> dict[str, Any]:
        """With other first messages."""
        old = body["messages"]
        head = [
            messages([message])[0] if at is None else old[at]
            for message, at in unchanged_tail(before, after)
        ]
        return {**body, "messages": [*head, *old[len(before) :]]}


def _message(wire: Mapping[str, Any]) -> Message:
    role = _ROLES.get(str(wire.get("role")))
    if role is None:
        raise UnreadableError("a message has an unknown role")
    reasoning = wire.get("reasoning_content") or wire.get("reasoning")
    calls = [mapping(call, "a call") for call in items(wire.get("tool_calls"), "tool_calls")]
    if not calls and wire.get("function_call"):
        calls = [{"id": FUNCTION_CALL, "function": wire["function_call"]}]
    answered = FUNCTION_CALL if wire.get("role") == "function" else None
    return Message(
        role=role,  # type: ignore[arg-type]  # one of _ROLES
        content=text_of(wire.get("content")) or text_of(wire.get("refusal")),
        reasoning=reasoning if isinstance(reasoning, str) else None,
        tool_calls=tuple(map(_call, calls)),
        tool_call_id=wire.get("tool_call_id") or answered,
    )


def _call(wire: Mapping[str, Any]) -> ToolCall:
    function = mapping(wire.get("function") or wire.get("custom"), "a call's function")
    arguments = function.get("arguments", function.get("input", ""))
    return ToolCall(
        id=str(wire.get("id") or ""), name=str(function.get("name") or ""), arguments=str(arguments)
    )


class _Whole(WholeBody):
    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        try:
            return _answers(read_answer(self.data), asked, turn, trace)
        except ValueError as error:
            raise UnreadableError("the answer is no chat completion") from error


class _Stream:
    ends: tuple[bytes, ...] = (b"[DONE]",)

    def __init__(self) -> None:
        self.complete = False
        self._events, self._assembly = EventReader(), Assembly()

    def feed(self, data: bytes) -> None:
        try:
            for event in self._events.feed(data):
                if event.strip() == b"[DONE]":
                    self.complete = True
                elif not self.complete:
                    self._add(event)
        except (BrokenStreamError, StreamedError) as error:
            raise UnreadableError("the stream has an error or an event that is no JSON") from error

    def _add(self, event: bytes) -> None:
        self._assembly.add(event)

    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        try:
            return _answers(self._answer(), asked, turn, trace)
        except BrokenStreamError as error:
            raise UnreadableError("the stream ended before the answer did") from error

    def _answer(self) -> Answer:
        return self._assembly.answer()

    def so_far(self) -> Message | None:
        self._assembly.finish_reason = self._assembly.finish_reason or "other"
        return completion(self._assembly.answer(), turn=0, model="").message


class _Streams(_Stream):
    """Several answers, whose pieces come in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._by_index: dict[int, Assembly] = {}

    def _add(self, event: bytes) -> None:
        found = read_event(event)
        common = {name: value for name, value in found.items() if name != "choices"}
        self._assembly.add(msgspec.json.encode(common))  # the usage, or an error
        for choice in items(found.get("choices"), "choices"):
            index = int(mapping(choice, "a choice").get("index") or 0)
            own = {**common, "choices": [choice]}
            self._by_index.setdefault(index, Assembly()).add(msgspec.json.encode(own))

    def _answer(self) -> Answer:
        made = [self._by_index[index].answer() for index in sorted(self._by_index)]
        if not made:
            raise BrokenStreamError("the stream has no answer")
        self._assembly.finish_reason = "other"
        usage = self._assembly.answer().usage
        choices = [choice for each in made for choice in each.choices]
        return msgspec.structs.replace(made[0], choices=choices, usage=usage)

    def so_far(self) -> Message | None:
        for assembly in self._by_index.values():
            assembly.finish_reason = assembly.finish_reason or "other"
        if not self._by_index:
            return None
        return completion(self._answer(), turn=0, model="").message


def _answers(answer: Answer, asked: Asked, turn: int, trace: bool) -> list[Answered]:
    """One for each choice; the tokens are counted once, with the first."""
    made = []
    for i, choice in enumerate(answer.choices):
        usage = answer.usage if i == 0 else None
        own = msgspec.structs.replace(answer, choices=[choice], usage=usage)
        recorded = completion(own, turn=turn + i, model=asked.model, trace=trace)
        made.append(Answered(completion=recorded))
    return made
