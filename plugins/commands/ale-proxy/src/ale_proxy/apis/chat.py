"""OpenAI's chat completions, as vLLM, SGLang, Ollama, LM Studio and others have them too."""

from collections.abc import Mapping, Sequence
from typing import Any

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
        if body.get("n") not in (None, 1):
            raise UnreadableError("it asks for several answers")
        wire = items(body.get("messages"), "messages")
        return Asked(
            messages=tuple(_message(mapping(each, "a message")) for each in wire),
            tools=specs(body.get("tools")),
            model=str(body.get("model") or ""),
            stream=bool(body.get("stream")),
            exact=samples_as_model(body),
        )

    def reader(self, *, stream: bool) -> AnswerReader:
        """For one answer."""
        return _Stream() if stream else _Whole()

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
        content=text_of(wire.get("content")),
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
    def answered(self, asked: Asked, *, turn: int, trace: bool) -> Answered:
        try:
            return _answered(read_answer(self.data), asked, turn, trace)
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
                    self._assembly.add(event)
        except (BrokenStreamError, StreamedError) as error:
            raise UnreadableError("the stream has an error or an event that is no JSON") from error

    def answered(self, asked: Asked, *, turn: int, trace: bool) -> Answered:
        try:
            return _answered(self._assembly.answer(), asked, turn, trace)
        except BrokenStreamError as error:
            raise UnreadableError("the stream ended before the answer did") from error


def _answered(answer: Answer, asked: Asked, turn: int, trace: bool) -> Answered:
    return Answered(completion=completion(answer, turn=turn, model=asked.model, trace=trace))
