"""OpenAI's responses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ale.types import Completion, Message, ToolCall, replace
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

_ENDS = ("response.completed", "response.incomplete")
_FAILURES = ("error", "response.failed")
_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "content",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
"""Where the pieces of an answer belong, by the type of their event."""
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_READ = tuple(name.encode() for name in (*_ENDS, *_FAILURES))


class ResponsesApi:
    """``/v1/responses``. What the server itself does within an answer is not recorded."""

    name = "responses"
    token_fields: Mapping[str, Any] = {}

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """The conversation, with tools, of a request."""
        if body.get("conversation") or isinstance(body.get("prompt"), dict):
            raise UnreadableError("it names a conversation or a prompt that the server keeps")
        given = body.get("input")
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        system = body.get("instructions")
        head = [Message(role="system", content=system)] if isinstance(system, str) else []
        wire = [mapping(item, "an item") for item in items(given, "input")]
        previous = body.get("previous_response_id")
        return Asked(
            messages=(*head, *_joined(filter(None, map(_message, wire)))),
            tools=specs(body.get("tools")),
            model=str(body.get("model") or ""),
            stream=bool(body.get("stream")),
            previous=previous if isinstance(previous, str) else None,
        )

    def reader(self, asked: Asked) -> AnswerReader:
        """For the answer to one request."""
        return _Stream() if asked.stream else _Whole()

    def with_head(
        self, body: Mapping[str, Any], before: Sequence[Message], after: Sequence[Message]
    ) -> dict[str, Any]:
        """With other instructions and first items."""
        given = body.get("input")
        old = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
        skip = isinstance(body.get("instructions"), str)
        instructions = [m.content for m in after if m.role == "system" and m not in before[skip:]]
        rest = [
            {"role": message.role, "content": message.content} if at is None else old[at - skip]
            for message, at in unchanged_tail(before, after)
            if message.role != "system" or (at is not None and at >= skip)
        ]
        changed = {**body, "input": [*rest, *old[len(before) - skip :]]}
        return {**changed, "instructions": "\n\n".join(instructions)} if instructions else changed


def _message(item: Mapping[str, Any]) -> Message | None:
    """An item as a message; None for one that says nothing, such as a reference."""
    kind = item.get("type", "message")
    if kind == "message":
        role = {"developer": "system"}.get(item.get("role", ""), item.get("role"))
        if role not in ("system", "user", "assistant"):
            raise UnreadableError("a message has an unknown role")
        return Message(role=role, content=text_of(item.get("content")))  # type: ignore[arg-type]
    if kind in ("function_call", "custom_tool_call"):
        return Message(role="assistant", tool_calls=(_call(item),))
    if kind in ("function_call_output", "custom_tool_call_output"):
        call = str(item.get("call_id"))
        return Message(role="tool", content=text_of(item.get("output")), tool_call_id=call)
    if kind == "reasoning":
        return Message(role="assistant", reasoning=text_of(item.get("summary")))
    return None


def _call(item: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        id=str(item.get("call_id") or item.get("id") or ""),
        name=str(item.get("name") or ""),
        arguments=str(item.get("arguments", item.get("input")) or ""),
    )


def _joined(messages: Iterable[Message]) -> Iterator[Message]:
    """Reasoning, text and calls of one answer are items of their own: one message."""
    last: Message | None = None
    for message in messages:
        if last is None or {last.role, message.role} != {"assistant"}:
            if last is not None:
                yield last
            last = message
            continue
        last = replace(
            last,
            content=last.content + message.content,
            reasoning=(last.reasoning or "") + (message.reasoning or "") or None,
            tool_calls=(*last.tool_calls, *message.tool_calls),
        )
    if last is not None:
        yield last


def _answered(response: Mapping[str, Any], asked: Asked) -> Answered:
    status = response.get("status", "completed")
    output = response.get("output")
    if status not in ("completed", "incomplete") or response.get("error") or output is None:
        raise UnreadableError("the response is not complete")
    wire = [mapping(item, "an item") for item in items(output, "output")]
    messages = [message for message in map(_message, wire) if message is not None]
    (message,) = _joined([Message(role="assistant"), *messages])
    reason = "tool_calls" if message.tool_calls else "stop"
    if any(_refuses(item) for item in wire):
        reason = "content_filter"
    completion = Completion(
        message=message,
        finish_reason="length" if status == "incomplete" else reason,  # type: ignore[arg-type]
        usage=usage_of(response),
        model=response.get("model") or asked.model,
    )
    return Answered(completion=completion, id=response.get("id"))


def _refuses(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


class _Whole(WholeBody):
    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        return [_answered(self.body(), asked)]


class _Stream:
    """Its last event has the whole response."""

    ends: tuple[bytes, ...] = tuple(name.encode() for name in _ENDS)

    def __init__(self) -> None:
        self._events = EventReader()
        self._response: Mapping[str, Any] | None = None
        self._parts: list[bytes] = []
        """Events that are read only if the last one does not come."""

    @property
    def complete(self) -> bool:
        return self._response is not None

    def feed(self, data: bytes) -> None:
        for event in self._events.feed(data):
            # Most events are parts of what the last one has whole.
            if any(name in event for name in _READ):
                self._last(read_event(event))
            else:
                self._parts.append(event)

    def _last(self, event: Mapping[str, Any]) -> None:
        if event.get("type") in _FAILURES:
            raise UnreadableError("the stream has an error")
        if event.get("type") in _ENDS:
            self._response = mapping(event.get("response"), "the response")
            self._parts = []

    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        if self._response is None:
            raise UnreadableError("the stream ended before the answer did")
        return [_answered(self._response, asked)]

    def so_far(self) -> Message | None:
        texts: dict[str, list[str]] = {field: [] for field in _DELTAS.values()}
        calls: dict[str, ToolCall] = {}
        for event in map(read_event, self._parts):
            kind, item = str(event.get("type")), event.get("item")
            if kind == "response.output_item.added" and isinstance(item, dict):
                if item.get("type") in ("function_call", "custom_tool_call"):
                    calls[str(item.get("id"))] = _call(item)
            elif kind in _DELTAS:
                texts[_DELTAS[kind]].append(str(event.get("delta") or ""))
            elif kind in _ARGUMENTS and (call := calls.get(str(event.get("item_id")))):
                more = call.arguments + str(event.get("delta") or "")
                calls[str(event.get("item_id"))] = replace(call, arguments=more)
        return Message(
            role="assistant",
            content="".join(texts["content"]),
            reasoning="".join(texts["reasoning"]) or None,
            tool_calls=tuple(calls.values()),
        )
