"""Tool calls and reasoning, read out of what a model wrote.

A call is whatever follows an opening mark. One that is not valid JSON is still a call, with its
text as arguments, so that the agent can tell the model what is wrong with it.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ale.types import ToolCall

Span = tuple[int, int]
"""Half-open, in characters."""

_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,80})"')
_BLANK = re.compile(r"\s*")
_DECODER = json.JSONDecoder(strict=False)  # models write line breaks inside strings


@frozen(kw_only=True)
class FoundCall:
    """A call in a text."""

    span: Span
    """The characters of the call, marks included."""
    name: str
    arguments: str


Find = Callable[[str, int], list[FoundCall]]
"""The calls of a text from a position on, in order."""


@frozen
class Reading:
    """An answer, taken apart."""

    content: str
    reasoning: str | None
    calls: tuple[FoundCall, ...]
    kept: tuple[Span, ...]
    """The characters of the answer that `content` is made of, in order."""

    def place(self, position: int) -> int:
        """The index into `content` of a character of the answer, or of the next that is in it."""
        return sum(max(0, min(position, stop) - start) for start, stop in self.kept)

    def tool_calls(self, turn: int) -> tuple[ToolCall, ...]:
        """The calls, numbered by turn and place."""
        return tuple(
            ToolCall(id=f"call_{turn}_{index}", name=call.name, arguments=call.arguments)
            for index, call in enumerate(self.calls)
        )


def read(text: str, find: Find | None) -> Reading:
    """Take an answer apart: leading reasoning, content, calls.

    Args:
        text: what the model wrote, without the end-of-turn token.
        find: how calls are written; None where no tool was offered, and nothing is a call.
    """
    reasoning, start = _reasoning(text)
    calls = find(text, start) if find else []
    edges = [start, *(edge for call in calls for edge in call.span), len(text)]
    outside = list(zip(edges[::2], edges[1::2], strict=True))
    kept = _trimmed(text, outside) if calls or start else outside
    content = "".join(text[a:b] for a, b in kept)
    return Reading(content, reasoning, tuple(calls), tuple(kept))


def _reasoning(text: str) -> tuple[str | None, int]:
    """The text of a leading ``<think>`` block, and where what follows it starts.

    A template may have opened the block in the prompt, so a closing tag alone counts too.
    """
    opening = _BLANK.match(text)
    start = opening.end() if opening else 0
    opened = text.startswith("<think>", start)
    close = text.find("</think>")
    if close < 0:
        return (text[start + len("<think>") :].strip(), len(text)) if opened else (None, 0)
    begin = start + len("<think>") if opened else 0
    return text[begin:close].strip(), close + len("</think>")


def _trimmed(text: str, spans: list[Span]) -> list[Span]:
    """Without the blanks at both ends: templates put them around reasoning and calls."""
    joined = [at for start, stop in spans for at in range(start, stop) if not text[at].isspace()]
    if not joined:
        return []
    first, last = joined[0], joined[-1] + 1
    cut = [(max(start, first), min(stop, last)) for start, stop in spans]
    return [(start, stop) for start, stop in cut if start < stop]


def hermes(text: str, start: int) -> list[FoundCall]:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen, the tiny policy.

    A call that is cut off, or whose closing tag is missing, ends where its JSON does, or with the
    text.
    """
    found: list[FoundCall] = []
    while (begin := text.find("<tool_call>", start)) >= 0:
        inner = begin + len("<tool_call>")
        close = text.find("</tool_call>", inner)
        name, arguments, stop = _call(text, inner, close if close >= 0 else len(text), "arguments")
        after = _blank_end(text, stop)
        start = after + len("</tool_call>") if text.startswith("</tool_call>", after) else stop
        found.append(FoundCall(span=(begin, start), name=name, arguments=arguments))
    return found


def mistral(text: str, start: int) -> list[FoundCall]:
    """``[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]``, up to the end of the text."""
    begin = text.find("[TOOL_CALLS]", start)
    if begin < 0:
        return []
    inner = text[begin + len("[TOOL_CALLS]") :]
    try:
        values = _DECODER.decode(inner)
        parts = [_parts(value, "arguments") for value in values]
    except (ValueError, RecursionError, TypeError):
        parts = [(_named(inner), inner.strip())]
    edges = [begin, *([len(text)] * len(parts))]
    return [
        FoundCall(span=(a, b), name=name, arguments=arguments)
        for a, b, (name, arguments) in zip(edges, edges[1:], parts, strict=False)
    ]


def llama3(text: str, start: int) -> list[FoundCall]:
    """``{"name": ..., "parameters": {...}}`` as the whole answer: Llama 3.1 and later."""
    begin = _blank_end(text, start)
    if text.startswith("<|python_tag|>", begin):
        begin += len("<|python_tag|>")
    if not text.startswith("{", begin) or '"name"' not in text:
        return []
    name, arguments, _ = _call(text, begin, len(text), "parameters")
    return [FoundCall(span=(start, len(text)), name=name, arguments=arguments)]


FORMATS: Mapping[str, Find] = {"hermes": hermes, "llama3": llama3, "mistral": mistral}


def _call(text: str, start: int, stop: int, key: str) -> tuple[str, str, int]:
    """Name and arguments of the JSON object at `start`, and where it ends."""
    try:
        # The decoder, not the mark, finds the end: a string may hold the mark.
        value, end = _DECODER.raw_decode(text, _blank_end(text, start))
        name, arguments = _parts(value, key)
    except (ValueError, RecursionError):
        body = text[start:stop].strip()
        return _named(body), body, stop
    return name, arguments, end


def _parts(value: Any, key: str) -> tuple[str, str]:
    call = value if isinstance(value, dict) else {}
    name, arguments = call.get("name"), call.get(key, {})
    shown = name.encode("utf-8", "backslashreplace").decode() if isinstance(name, str) else ""
    if isinstance(arguments, str):  # written as text, the way the OpenAI API has it
        return shown, arguments.encode("utf-8", "backslashreplace").decode()
    if not isinstance(value, dict):
        return shown, json.dumps(value)
    return shown, written(arguments)


def written(arguments: Any) -> str:
    """Arguments as JSON text; half a surrogate pair, which no file can hold, stays an escape."""
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(arguments)
    return text


def _named(body: str) -> str:
    named = _NAME.search(body)
    return named[1] if named else ""


def _blank_end(text: str, start: int) -> int:
    blank = _BLANK.match(text, start)
    return blank.end() if blank else start
