"""ShareGPT: ``conversations`` of ``from`` and ``value``, tool calls as Hermes writes them.

Calls are in the answer as ``<tool_call>{"name": ..., "arguments": ...}</tool_call>``, and their
results in a message from ``tool`` as ``<tool_response>...</tool_response>``. LLaMA-Factory's
``function_call`` and ``observation`` are read too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ale_rows.exchange.conversations import Read, chat_tools_of
from ale_rows.exchange.items import Item, LeftOutError, learns, listed, refuse_unheld
from ale_rows.exchange.openai import add_system, call_of
from ale_rows.exchange.trl import object_or_text
from ale_rows.rows import ChatCall, ChatMessage, DpoRow, SftRow

PREFERENCE_KEY = "chosen"
KEYS = frozenset(("conversations", "system", "tools", "chosen", "rejected"))
BELOW = dict.fromkeys(("conversations", "chosen", "rejected"), frozenset(("from", "value")))
_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_CALL = re.compile(r"\n?<tool_call>\s*(.*?)\s*</tool_call>", re.S)
_RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.S)
_THINK = re.compile(r"\A<think>\n?(.*?)\n?</think>\n*", re.S)


def read(item: Item) -> Read:
    """An item with ``conversations``; its ``system`` comes first."""
    refuse_unheld(item)
    read = Read(tools=chat_tools_of(item.get("tools")))
    add_system(read, item)
    for entry in listed(item, "conversations"):
        for message in _messages(entry, read):
            read.add(message, learn=learns(entry))
    return read


def read_preference(item: Item) -> tuple[Read, Sequence[ChatMessage], Sequence[ChatMessage]]:
    """LLaMA-Factory's: ``conversations`` are the prompt, ``chosen`` and ``rejected`` one entry."""
    prompt = read(item)
    better = list(_messages(item.get("chosen"), prompt))
    return prompt, better, list(_messages(item.get("rejected"), prompt))


def _messages(entry: Any, read: Read) -> Iterator[ChatMessage]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("value"), str):
        raise LeftOutError("an entry without a text 'value'")
    role, value = _ROLES.get(str(entry.get("from"))), entry["value"]
    if role is None:
        raise LeftOutError(f"an entry from '{entry.get('from')}'")
    if role == "tool":
        yield from _responses(value, read)
    elif role == "assistant":
        yield _answer(value, whole_call=entry.get("from") == "function_call")
    else:
        yield ChatMessage(role="system" if role == "system" else "user", content=value)


def _answer(value: str, *, whole_call: bool) -> ChatMessage:
    thought = _THINK.match(value)
    text = value[thought.end() :] if thought else value
    found = [text] if whole_call else _CALL.findall(text)
    return ChatMessage(
        role="assistant",
        content="" if whole_call else _CALL.sub("", text),
        tool_calls=tuple(_calls(found)) or None,
        reasoning_content=thought[1] if thought else None,
    )


def _calls(texts: Sequence[str]) -> Iterator[ChatCall]:
    number = 0
    for text in texts:
        try:
            made = msgspec.json.decode(text)
        except msgspec.MsgspecError as error:
            raise LeftOutError("a tool call that is not JSON") from error
        for call in made if isinstance(made, list) else [made]:
            yield call_of({"function": call}, number)
            number += 1


def _responses(value: str, read: Read) -> Iterator[ChatMessage]:
    """The results of the last answer's calls, in their order."""
    asked = [call.id for message in read.messages[-1:] for call in message.tool_calls or ()]
    if not asked and read.messages and read.messages[-1].role == "tool":
        asked = _unanswered(read)
    for number, text in enumerate(_RESPONSE.findall(value) or [value]):
        known = number < len(asked)
        yield ChatMessage(
            role="tool", content=_content(text), tool_call_id=asked[number] if known else None
        )


def _unanswered(read: Read) -> list[str]:
    last = max((i for i, m in enumerate(read.messages) if m.tool_calls), default=None)
    if last is None:
        return []
    return [call.id for call in read.messages[last].tool_calls or ()][
        len(read.messages) - 1 - last :
    ]


def _content(text: str) -> str:
    try:
        found = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
    if isinstance(found, dict) and isinstance(found.get("content"), str):
        return str(found["content"])
    return text


def write(row: SftRow) -> dict[str, Any]:
    """A conversation; answers that are not trained on have ``weight`` 0."""
    entries = list(_entries(row.messages, row.loss_weights))
    return _with_tools({"conversations": entries}, row)


def write_preference(row: DpoRow) -> dict[str, Any]:
    """A preference.

    Raises:
        LeftOutError: an answer of several messages, which this format can't hold.
    """
    if len(row.chosen) != 1 or len(row.rejected) != 1:
        raise LeftOutError("answers of several messages, which ShareGPT can't hold")
    prompt = list(_entries(row.prompt, (1.0,) * len(row.prompt)))
    made = {
        "conversations": prompt,
        "chosen": next(_entries(row.chosen, (1.0,))),
        "rejected": next(_entries(row.rejected, (1.0,))),
    }
    return _with_tools(made, row)


def _with_tools(made: dict[str, Any], row: SftRow | DpoRow) -> dict[str, Any]:
    if row.tools:
        made["tools"] = msgspec.json.encode(row.tools).decode()
    return made


def _entries(messages: Sequence[ChatMessage], weights: Sequence[float]) -> Iterator[dict[str, Any]]:
    position = 0
    while position < len(messages):
        message, weight = messages[position], weights[position]
        position += 1
        if message.role == "tool":
            blocks = [_response(message)]
            while position < len(messages) and messages[position].role == "tool":
                blocks.append(_response(messages[position]))
                position += 1
            yield {"from": "tool", "value": "\n".join(blocks)}
            continue
        value = _answer_text(message) if message.role == "assistant" else message.content
        entry: dict[str, Any] = {"from": _FROM[message.role], "value": value}
        if message.role == "assistant" and not weight:
            entry["weight"] = 0
        yield entry


def _answer_text(message: ChatMessage) -> str:
    text = message.content
    if message.reasoning_content is not None:
        text = f"<think>\n{message.reasoning_content}\n</think>\n\n{text}"
    for call in message.tool_calls or ():
        arguments = object_or_text(call.function.arguments)
        block = _safe({"name": call.function.name, "arguments": arguments})
        text += f"\n<tool_call>\n{block}\n</tool_call>"
    return text


def _response(message: ChatMessage) -> str:
    block = _safe({"content": message.content})
    return f"<tool_response>\n{block}\n</tool_response>"


def _safe(value: Any) -> str:
    """JSON in which no closing tag can occur."""
    return msgspec.json.encode(value).decode().replace("</", "<\\/")


_FROM: Mapping[str, str] = {"system": "system", "user": "human", "assistant": "gpt"}
