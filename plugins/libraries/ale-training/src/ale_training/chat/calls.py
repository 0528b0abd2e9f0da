"""Tool calls and reasoning, read out of what a model wrote.

A call is whatever follows an opening mark. A call that can't be read whole is still a call, with
its text as arguments, so that the agent can tell the model what is wrong with it; it is never read
as a shorter one. What follows it may be a part of it, so no later call is read.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ale.types import ToolCall, ToolSpec

Span = tuple[int, int]
"""Half-open range of characters."""

_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,80})"')
_BLANK = re.compile(r"\s*")


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a mapping.

    Raises:
        ValueError: a name occurs twice.
    """
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


# Models write line breaks inside strings.
DECODER = json.JSONDecoder(strict=False, object_pairs_hook=no_repeats)


@frozen(kw_only=True)
class FoundCall:
    """A call in a text."""

    span: Span
    """The characters of the call, marks included."""
    name: str
    arguments: str
    id: str | None = None
    """The id as the model wrote it, in formats that have ids."""
    untyped: bool = False
    """Are the arguments' values given as texts, whatever their types?"""
    broken: bool = False
    """Could it not be read whole? Its arguments are no JSON object then."""


Find = Callable[[str, int], list[FoundCall]]
"""Finds the calls of a text from a position on, in order."""


@frozen
class Reading:
    """An answer, taken apart."""

    content: str
    reasoning: str | None
    calls: tuple[FoundCall, ...]
    kept: tuple[Span, ...]
    """The characters of the answer that `content` is made of, in order."""

    def place(self, position: int) -> int:
        """The index in `content` of a character of the answer, or of the next one that is in it."""
        return sum(max(0, min(position, stop) - start) for start, stop in self.kept)

    def tool_calls(self, turn: int, tools: Sequence[ToolSpec] = ()) -> tuple[ToolCall, ...]:
        """The calls, with the model's own ids, or numbered by turn and place.

        Args:
            turn: number of the answer's turn.
            tools: their schemas say which values of untyped arguments are not texts.
        """
        own = [call.id for call in self.calls]
        keep = None not in own and len({*own}) == len(own)
        return tuple(
            ToolCall(
                id=str(call.id) if keep else f"call_{turn}_{index}",
                name=call.name,
                arguments=_typed(call, tools) if call.untyped else call.arguments,
            )
            for index, call in enumerate(self.calls)
        )


def _typed(call: FoundCall, tools: Sequence[ToolSpec]) -> str:
    """Arguments whose values were written as texts, converted to the types in the tool's schema."""
    schemas: Mapping[str, Any] = next(
        (dict(t.parameters).get("properties", {}) for t in tools if t.name == call.name), {}
    )
    values = json.loads(call.arguments)
    return written({key: _value(text, schemas.get(key)) for key, text in values.items()})


def _value(text: str, schema: Any) -> Any:
    if not isinstance(schema, Mapping) or schema.get("type", "string") == "string":
        return text
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError):
        return text


@frozen
class Format:
    """How a family of models writes reasoning and calls."""

    find: Find
    reasoning: Callable[[str], tuple[str | None, int]] = field(default=lambda text: think(text))
    """The reasoning at the beginning of a text, if any, and the position where it ends."""
    marks: Callable[[str, int], list[Span]] = field(default=lambda text, start: [])
    """From a position on, what is neither content nor a call, such as the names of channels."""
    call_id: Callable[[str], str] = str
    """A call's id in the form that the family's templates take."""
    text_arguments: bool = False
    """Do the family's templates take a call's arguments only as text?"""


def read(text: str, form: Format, *, calls: bool) -> Reading:
    """Take an answer apart: leading reasoning, content, calls.

    Args:
        text: what the model wrote, without the token that ends it.
        form: how the model's family writes answers.
        calls: was a tool offered? If not, nothing is a call.
    """
    reasoning, start = form.reasoning(text)
    found = form.find(text, start) if calls else []
    n = next((i for i, call in enumerate(found, 1) if call.broken), len(found))
    found = found[:n]
    spans = [call.span for call in found]
    marks = [mark for mark in form.marks(text, start) if not any(_inside(mark, s) for s in spans)]
    spans = sorted([*spans, *marks])
    edges = [start, *(edge for span in spans for edge in span), len(text)]
    outside = list(zip(edges[::2], edges[1::2], strict=True))
    kept = _trimmed(text, outside) if spans or start else outside
    content = "".join(text[a:b] for a, b in kept)
    return Reading(content, reasoning, tuple(found), tuple(kept))


def _inside(mark: Span, call: Span) -> bool:
    return call[0] <= mark[0] < call[1]


def think(text: str) -> tuple[str | None, int]:
    """The text of a leading ``<think>`` block, and the position where the rest starts.

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
    """The spans without blanks at both ends, as templates put blanks around reasoning and calls."""
    joined = [at for start, stop in spans for at in range(start, stop) if not text[at].isspace()]
    if not joined:
        return []
    first, last = joined[0], joined[-1] + 1
    cut = [(max(start, first), min(stop, last)) for start, stop in spans]
    return [(start, stop) for start, stop in cut if start < stop]


def json_call(text: str, start: int) -> tuple[FoundCall, int] | None:
    """The call in the JSON object at `start`, blanks before it, and where it ends; None if there is
    no JSON.
    """
    begin = blank_end(text, start)
    try:
        # The decoder, not the mark, finds the end: a string may hold the mark.
        value, end = DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    return parts(value, (start, end)), end


def parts(value: Any, span: Span) -> FoundCall:
    """A call in JSON: a name, and ``arguments`` or ``parameters``."""
    if not isinstance(value, dict):
        return FoundCall(span=span, name="", arguments=written(value), broken=True)
    name, own = value.get("name"), value.get("id")
    shown = name.encode("utf-8", "backslashreplace").decode() if isinstance(name, str) else ""
    keys = [key for key in ("arguments", "parameters") if key in value]
    if len(keys) > 1 or {*value} - {"name", "id", "type", *keys}:
        # Arguments under another name would be lost.
        return FoundCall(span=span, name=shown, arguments=written([value]), broken=True)
    arguments = value[keys[0]] if keys else {}
    if isinstance(arguments, str):  # written as text, as in the OpenAI API
        arguments = arguments.encode("utf-8", "backslashreplace").decode()
    else:
        arguments = written(arguments)
    own = own if isinstance(own, str) else None
    return FoundCall(span=span, name=shown, arguments=arguments, id=own)


def unread(span: Span, body: str, name: str | None = None) -> FoundCall:
    """A call that can't be read whole."""
    body = body.strip()
    name = named(body) if name is None else name
    try:
        whole = isinstance(json.loads(body, strict=False), dict)
    except (ValueError, RecursionError):
        whole = False
    return FoundCall(span=span, name=name, arguments=f"[{body}]" if whole else body, broken=True)


def written(arguments: Any) -> str:
    """Arguments as JSON text; a lone surrogate, which no file can hold, stays an escape."""
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(arguments)
    return text


def named(body: str) -> str:
    """The name that a call seems to have if it is not JSON."""
    named = _NAME.search(body)
    return named[1] if named else ""


def blank_end(text: str, start: int) -> int:
    """The position where the blanks at `start` end."""
    blank = _BLANK.match(text, start)
    return blank.end() if blank else start
