"""Anthropic's messages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ale.types import Completion, FinishReason, Message, ToolCall, replace
from ale_openai_wire.stream import EventReader
from ale_proxy.apis.api import (
    Answered,
    AnswerReader,
    Asked,
    UnreadableError,
    WholeBody,
    items,
    mapping,
    read_event,
    specs,
    text_of,
    unchanged_tail,
    usage_of,
)

_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicApi:
    """``/v1/messages``."""

    name = "messages"
    token_fields: Mapping[str, Any] = {}

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """The conversation, with tools, of a request."""
        system = text_of(body.get("system"))
        head = [Message(role="system", content=system)] if system else []
        wire = [mapping(each, "a message") for each in items(body.get("messages"), "messages")]
        return Asked(
            messages=(*head, *(message for each in wire for message in _messages(each))),
            tools=specs(body.get("tools")),
            model=str(body.get("model") or ""),
            stream=bool(body.get("stream")),
        )

    def reader(self, asked: Asked) -> AnswerReader:
        """For the answer to one request."""
        return _Stream() if asked.stream else _Whole()

    def with_head(
        self, body: Mapping[str, Any], before: Sequence[Message], after: Sequence[Message]
    ) -> dict[str, Any]:
        """With another system prompt and first messages.

        An old system prompt that the new one begins with keeps its parts, and with them the marks
        of what is cached.
        """
        old, skip = body["messages"], bool(text_of(body.get("system")))
        first = [message for message in before if message.role != "system"]
        rest = [
            {"role": message.role, "content": message.content} if at is None else old[at]
            for message, at in unchanged_tail(
                first, [message for message in after if message.role != "system"]
            )
        ]
        changed = {**body, "messages": [*rest, *old[len(before) - skip :]]}
        system = "\n\n".join(message.content for message in after if message.role == "system")
        return {**changed, "system": _system(body.get("system"), system)} if system else changed


def _system(old: Any, new: str) -> Any:
    if not isinstance(old, list) or not new.startswith(text_of(old)):
        return new
    added = new.removeprefix(text_of(old))
    return [*old, {"type": "text", "text": added}] if added else old


def _messages(wire: Mapping[str, Any]) -> Iterator[Message]:
    """The results of calls in a user's message are messages of their own."""
    role, content = wire.get("role"), wire.get("content")
    if role not in ("user", "assistant"):
        raise UnreadableError("a message has an unknown role")
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else []
    blocks = [mapping(block, "a block") for block in blocks or items(content, "a content")]
    if role == "assistant":
        yield _assistant(blocks)
        return
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    for block in blocks:
        if block.get("type") == "tool_result":
            call = str(block.get("tool_use_id"))
            yield Message(role="tool", content=text_of(block.get("content")), tool_call_id=call)
    if rest or not blocks:
        yield Message(role="user", content=text_of(rest))


def _assistant(blocks: Sequence[Mapping[str, Any]]) -> Message:
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    texts = [block for block in blocks if block.get("type") == "text"]
    thought = [str(b.get("thinking") or "") for b in blocks if b.get("type") == "thinking"]
    return Message(
        role="assistant",
        content=text_of(texts),
        reasoning="".join(thought) or None,
        tool_calls=tuple(
            ToolCall(
                id=str(block.get("id")),
                name=str(block.get("name")),
                # The API has the arguments as an object: their text is written here.
                arguments=json.dumps(block.get("input") or {}, ensure_ascii=False),
            )
            for block in calls
        ),
    )


def _answered(body: Mapping[str, Any], asked: Asked) -> Answered:
    if body.get("type") != "message" or body.get("stop_reason") is None:
        raise UnreadableError("the answer is no complete message")
    blocks = [mapping(block, "a block") for block in items(body.get("content"), "content")]
    completion = Completion(
        message=_assistant(blocks),
        finish_reason=_REASONS.get(body["stop_reason"], "other"),
        usage=usage_of(body),
        model=body.get("model") or asked.model,
    )
    return Answered(completion=completion)


class _Whole(WholeBody):
    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        return [_answered(self.body(), asked)]


_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
"""By the type of a delta: its field, which is also that of the block but for arguments."""


class _Stream:
    ends: tuple[bytes, ...] = (b"message_stop",)

    def __init__(self) -> None:
        self.complete = False
        self._events = EventReader()
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}

    def feed(self, data: bytes) -> None:
        for event in self._events.feed(data):
            self._add(read_event(event))

    def _add(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "error":
            raise UnreadableError("the stream has an error")
        if kind == "message_start":
            self._message = dict(mapping(event.get("message"), "the message"))
        elif kind == "content_block_start":
            self._blocks[event.get("index", 0)] = dict(mapping(event["content_block"], "a block"))
        elif kind == "content_block_delta":
            self._extend(event.get("index", 0), mapping(event.get("delta"), "a delta"))
        elif kind == "message_delta":
            used = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
            self._message |= {**mapping(event.get("delta"), "a delta"), "usage": used}
        elif kind == "message_stop":
            self.complete = True

    def _extend(self, index: int, delta: Mapping[str, Any]) -> None:
        name = _FIELDS.get(delta.get("type", ""))
        if name is None:
            return
        block = self._blocks.setdefault(index, {})
        block[name] = block.get(name, "") + (delta.get(name) or "")

    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        blocks = [_with_input(self._blocks[index]) for index in sorted(self._blocks)]
        return [_answered({**self._message, "content": blocks}, asked)]

    def so_far(self) -> Message | None:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        made = _assistant(blocks)
        written = [block.get("partial_json") for block in blocks if block.get("type") == "tool_use"]
        calls = [
            replace(call, arguments=call.arguments if text is None else str(text))
            for call, text in zip(made.tool_calls, written, strict=True)
        ]
        return replace(made, tool_calls=tuple(calls))


def _with_input(block: Mapping[str, Any]) -> Mapping[str, Any]:
    text = block.get("partial_json")
    if not text:
        return block
    try:
        return {**block, "input": msgspec.json.decode(text)}
    except msgspec.DecodeError as error:
        raise UnreadableError("the arguments of a call are no JSON") from error
