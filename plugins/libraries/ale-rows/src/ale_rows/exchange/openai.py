"""OpenAI's formats for fine-tuning: chats, and preferences.

Source: OpenAI's guides "Supervised fine-tuning" and "Direct preference optimization".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ale_rows.exchange.conversations import Read, chat_tools_of
from ale_rows.exchange.items import (
    Item,
    LeftOutError,
    learns,
    listed,
    plain_text,
    refuse_unheld,
)
from ale_rows.rows import ChatCall, ChatFunction, ChatMessage, DpoRow, SftRow

_REASONING = ("reasoning_content", "reasoning", "thinking")
PREFERENCE_KEY = "preferred_output"
KEYS = frozenset(
    (
        *("messages", "tools", "functions", "parallel_tool_calls", "system"),
        *("input", "preferred_output", "non_preferred_output"),
    )
)
MESSAGE_KEYS = frozenset(
    ("role", "content", "tool_calls", "function_call", "tool_call_id", "refusal", *_REASONING)
)
BELOW = dict.fromkeys(("messages", "preferred_output", "non_preferred_output"), MESSAGE_KEYS)
_ROLES = {"developer": "system", "function": "tool"}
"""Role names of older and newer models that differ from those of records."""


def read(item: Item) -> Read:
    """An item with ``messages``; an answer with ``weight`` 0 is not trained on."""
    refuse_unheld(item)
    read = Read(tools=chat_tools_of(item.get("tools") or item.get("functions")))
    add_system(read, item)
    for message in listed(item, "messages"):
        read.add(message_of(message), learn=learns(message))
    return read


def add_system(read: Read, item: Item) -> None:
    """Begin with the item's own ``system``, if it has one."""
    if system := plain_text(item.get("system")):
        read.add(ChatMessage(role="system", content=system))


def read_preference(item: Item) -> tuple[Read, Sequence[ChatMessage], Sequence[ChatMessage]]:
    """The prompt, the preferred answer and the other one."""
    given = item.get("input")
    if not isinstance(given, Mapping):
        raise LeftOutError("no object 'input' in it")
    refuse_unheld(item)
    read = Read(tools=chat_tools_of(given.get("tools") or item.get("tools")))
    add_system(read, item)
    for message in listed(given, "messages"):
        read.add(message_of(message))
    better, worse = listed(item, "preferred_output"), listed(item, "non_preferred_output")
    return read, [message_of(each) for each in better], [message_of(each) for each in worse]


def message_of(message: Any) -> ChatMessage:
    """A message of chat completions; old fields and objects as arguments are accepted too.

    Raises:
        LeftOutError: it is not a message, or has more than text.
    """
    if not isinstance(message, Mapping):
        raise LeftOutError("a message that is not an object")
    role = str(message.get("role"))
    calls = listed(message, "tool_calls") if message.get("tool_calls") else []
    if function := message.get("function_call"):
        name = function.get("name") if isinstance(function, Mapping) else None
        calls = [{"id": name, "function": function}]
    content, reasoning, in_parts = _parts_of(message.get("content"))
    calls = [*calls, *in_parts]
    whole = {
        "role": _ROLES.get(role, role),
        "content": content or plain_text(message.get("refusal")),
        "tool_calls": [call_of(call, number) for number, call in enumerate(calls)] or None,
        "tool_call_id": message.get("tool_call_id") or _of_function(message),
        "reasoning_content": next(filter(None, map(message.get, _REASONING)), reasoning),
    }
    try:
        return msgspec.convert(whole, ChatMessage)
    except msgspec.MsgspecError as error:
        raise LeftOutError(f"not a chat message: {error}") from error


def _parts_of(content: Any) -> tuple[str, str | None, list[Any]]:
    """The text, the reasoning and the calls of a content, which LLaMA-Factory has as parts."""
    if not isinstance(content, list):
        return plain_text(content), None, []
    kinds: dict[str, list[Any]] = {"reasoning": [], "tool_call": []}
    texts = [part for part in content if not _is_of(part, kinds)]
    for part in content:
        if _is_of(part, kinds):
            kinds[part["type"]].append(part["value"])
    try:
        calls = [{"function": msgspec.json.decode(call)} for call in kinds["tool_call"]]
    except msgspec.MsgspecError as error:
        raise LeftOutError("a tool call that is not JSON") from error
    return plain_text(texts), "".join(kinds["reasoning"]) or None, calls


def _is_of(part: Any, kinds: Mapping[str, Any]) -> bool:
    has = isinstance(part, Mapping) and isinstance(part.get("value"), str)
    return has and part.get("type") in tuple(kinds)


def _of_function(message: Mapping[str, Any]) -> Any:
    return message.get("name") if message.get("role") == "function" else None


def call_of(call: Any, number: int) -> ChatCall:
    """A call; its arguments may be an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise LeftOutError("a tool call that names no function")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments or {}).decode()
    return ChatCall(
        id=str(call.get("id") or f"call_{number}"),
        function=ChatFunction(name=function["name"], arguments=arguments),
    )


def write(row: SftRow) -> dict[str, Any]:
    """A conversation; answers that are not trained on have ``weight`` 0.

    Reasoning is left out: the format has no field for it.
    """
    messages = []
    for message, weight in zip(row.messages, row.loss_weights, strict=True):
        wire = wire_message(message)
        if message.role == "assistant" and not weight:
            wire["weight"] = 0
        messages.append(wire)
    return with_tools({"messages": messages}, row)


def write_preference(row: DpoRow) -> dict[str, Any]:
    """A preference."""
    return {
        "input": with_tools({"messages": [wire_message(each) for each in row.prompt]}, row),
        "preferred_output": [wire_message(each) for each in row.chosen],
        "non_preferred_output": [wire_message(each) for each in row.rejected],
    }


def with_tools(made: dict[str, Any], row: SftRow | DpoRow) -> dict[str, Any]:
    """Add the row's tools, if it has any."""
    if row.tools:
        made["tools"] = msgspec.to_builtins(row.tools)
    return made


def wire_message(message: ChatMessage) -> dict[str, Any]:
    """A message as the API takes it: null, not empty, next to calls."""
    made: dict[str, Any] = msgspec.to_builtins(message)
    made.pop("reasoning_content", None)
    if message.tool_calls and not message.content:
        made["content"] = None
    return made
