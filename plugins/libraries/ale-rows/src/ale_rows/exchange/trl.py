"""TRL's conversational formats: ``messages``, ``prompt`` with ``completion``, and preferences.

Arguments of calls are objects, since chat templates print them with ``tojson``.

Source: TRL's documentation, "Dataset formats and types".
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ale_rows.exchange.conversations import Read, chat_tools_of
from ale_rows.exchange.items import Item, LeftOutError, learns, refuse_unheld
from ale_rows.exchange.openai import MESSAGE_KEYS, add_system, message_of, with_tools
from ale_rows.rows import ChatMessage, DpoRow, SftRow

PREFERENCE_KEY = "chosen"
KEYS = frozenset(("messages", "prompt", "completion", "chosen", "rejected", "tools", "system"))
BELOW = dict.fromkeys(("messages", "prompt", "completion", "chosen", "rejected"), MESSAGE_KEYS)


def read(item: Item) -> Read:
    """An item with ``messages``, or with ``prompt`` and ``completion``, also as plain text."""
    refuse_unheld(item)
    read = Read(tools=chat_tools_of(item.get("tools")))
    add_system(read, item)
    if "messages" in item:
        _add(read, item, "messages", "user")
        return read
    for message in messages_of(item, "prompt", "user"):
        read.add(message, learn=False)
    _add(read, item, "completion", "assistant")
    return read


def _add(read: Read, item: Item, key: str, role: str) -> None:
    given = item.get(key)
    messages = messages_of(item, key, role)
    learned = map(learns, given) if isinstance(given, list) else [True]
    for message, learn in zip(messages, learned, strict=True):
        read.add(message, learn=learn)


def read_preference(item: Item) -> tuple[Read, Sequence[ChatMessage], Sequence[ChatMessage]]:
    """The prompt, the chosen answer and the rejected one.

    Without a prompt, it is the longest common prefix of the two, as in TRL.
    """
    refuse_unheld(item)
    better = messages_of(item, "chosen", "assistant")
    worse = messages_of(item, "rejected", "assistant")
    read = Read(tools=chat_tools_of(item.get("tools")))
    add_system(read, item)
    if "prompt" in item:
        shared = messages_of(item, "prompt", "user")
    else:
        shared = _common(better, worse)
        better, worse = better[len(shared) :], worse[len(shared) :]
    for message in shared:
        read.add(message)
    return read, better, worse


def _common(one: Sequence[ChatMessage], other: Sequence[ChatMessage]) -> list[ChatMessage]:
    shared: list[ChatMessage] = []
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared.append(a)
    return shared


def messages_of(item: Item, key: str, role: str) -> list[ChatMessage]:
    """The messages under a key; plain text is one of this role."""
    found = item.get(key)
    if isinstance(found, str):
        return [message_of({"role": role, "content": found})]
    if not isinstance(found, list):
        raise LeftOutError(f"no messages '{key}'")
    return [message_of(message) for message in found]


def write(row: SftRow) -> dict[str, Any]:
    """A conversation.

    Raises:
        LeftOutError: some of its answers are not to be trained on, which the format can't express.
    """
    answers = [
        weight
        for message, weight in zip(row.messages, row.loss_weights, strict=True)
        if message.role == "assistant"
    ]
    if not all(answers):
        raise LeftOutError("answers that are not to be trained on, which TRL can't express")
    return with_tools({"messages": templated(row.messages)}, row)


def write_preference(row: DpoRow) -> dict[str, Any]:
    """A preference with an explicit prompt."""
    made = {name: templated(getattr(row, name)) for name in ("prompt", "chosen", "rejected")}
    return with_tools(made, row)


def templated(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages for a chat template: arguments that are JSON objects become objects."""
    made: list[dict[str, Any]] = [msgspec.to_builtins(message) for message in messages]
    for message in made:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = object_or_text(call["function"]["arguments"])
    return made


def object_or_text(arguments: str) -> Any:
    """The object in JSON text; the text itself if it is not an object."""
    try:
        found = msgspec.json.decode(arguments)
    except msgspec.MsgspecError:
        return arguments
    return found if isinstance(found, dict) else arguments
