"""How families of models write tool calls: one function per family finds them in a text."""

import ast
import json
import re
from collections.abc import Iterator, Mapping

from attrs import evolve

from ale_training.chat.calls import (
    DECODER,
    Format,
    FoundCall,
    Span,
    blank_end,
    json_call,
    no_repeats,
    parts,
    unread,
    written,
)

_XML = re.compile(
    r"<function=([^>\n]+)>\s*(?:<parameter=([^>\n]+)>(.*)</parameter>\s*)?</function>", re.DOTALL
)
_XML_NEXT = re.compile(r"</parameter>\s*<parameter=([^>\n]+)>")
_XML_NAME = re.compile(r"<function=([^>\n]+)>")
_GLM = re.compile(
    r"([^<]*?)\s*(?:<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*)</arg_value>\s*)?", re.DOTALL
)
_GLM_NEXT = re.compile(r"</arg_value>\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_GLM_NAME = re.compile(r"([^<]*)")
_PYTHON = re.compile(r"(\w+)\.call\((.*)\)\s*$", re.DOTALL)
_MISTRAL = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*([\w-]+)\s*)?\[ARGS\]\s*")
_FENCE = re.compile(r"\s*(\S*)\s*```json\n(.*?)\n?```\s*$", re.DOTALL)
_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?(?P<header>(?:(?!<\|message\|>).)*)<\|message\|>"
    r"(?P<body>.*?)(?:<\|(?:end|call|return)\|>|$)",
    re.DOTALL,
)
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
_PEOPLE = ("assistant", "user", "all")
_GEMMA_TEXT = re.compile(r'<\|"\|>(.*?)<\|"\|>', re.DOTALL)
_GEMMA_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.-]*)(\s*:)")


def hermes(text: str, start: int) -> list[FoundCall]:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen, the tiny policy.

    A call whose closing tag is missing ends where its JSON ends, if nothing but another call or the
    end of the text follows.
    """
    opening, closing = "<tool_call>", "</tool_call>"
    found: list[FoundCall] = []
    while (begin := text.find(opening, start)) >= 0:
        inner = begin + len(opening)
        made = json_call(text, inner)
        after = len(text) if made is None else blank_end(text, made[1])
        closed = text.startswith(closing, after)
        start = after + len(closing) if closed else after
        if made is not None and (closed or after == len(text) or text.startswith(opening, after)):
            found.append(evolve(made[0], span=(begin, start if closed else made[1])))
            continue
        close = text.find(closing, inner if made is None else made[1])
        end = close if close >= 0 else len(text)
        start = min(len(text), end + len(closing))
        found.append(unread((begin, start), text[inner:end]))
    return found


def mistral(text: str, start: int) -> list[FoundCall]:
    """``[TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}, ...]``, up to the end of the
    text, or ``[TOOL_CALLS]name[ARGS]{...}`` for each call, ``[CALL_ID]id`` after the name: Mistral.
    """
    opening = "[TOOL_CALLS]"
    begin = text.find(opening, start)
    if begin < 0:
        return []
    inner = begin + len(opening)
    try:
        if text.startswith("[", blank_end(text, inner)):
            values = DECODER.decode(text[inner:])
        else:
            values = [*_argued(text, inner, opening)]
    except (ValueError, RecursionError):
        return [unread((begin, len(text)), text[inner:])]
    edges = [begin, *([len(text)] * len(values))]
    return [parts(value, (a, b)) for a, b, value in zip(edges, edges[1:], values, strict=False)]


def _argued(text: str, at: int, opening: str) -> Iterator[dict[str, object]]:
    """Calls as ``name[ARGS]{...}``.

    Raises:
        ValueError: something else is among them.
    """
    while at < len(text):
        head = _MISTRAL.match(text, at)
        if head is None:
            raise ValueError("no name")
        arguments, end = DECODER.raw_decode(text, head.end())
        yield {"name": head[1], "arguments": arguments, "id": head[2]}
        at = blank_end(text, end)
        if at < len(text) and not text.startswith(opening, at):
            raise ValueError("no end")
        at += len(opening)


def llama3(text: str, start: int) -> list[FoundCall]:
    """``{"name": ..., "parameters": {...}}`` as the whole answer, several with ``;`` between them,
    or ``<|python_tag|>`` before them or before ``name.call(key="value")``: Llama 3.1 and later.

    Without the tag, an object that has no parameters is an answer in JSON.
    """
    begin = blank_end(text, start)
    tagged = text.startswith("<|python_tag|>", begin)
    if tagged:
        begin += len("<|python_tag|>")
    if not text.startswith("{", begin) or '"name"' not in text:
        return [_python(text, start, begin)] if tagged else []
    if not tagged and not any(f'"{key}"' in text for key in ("parameters", "arguments")):
        return []
    found: list[FoundCall] = []
    first = start
    while begin < len(text):
        made = json_call(text, begin)
        if made is None:
            return [*found, unread((first, len(text)), text[begin:])]
        call, stop = made
        begin = blank_end(text, stop)
        begin = blank_end(text, begin + 1) if text.startswith((";", ","), begin) else begin
        found.append(evolve(call, span=(first, begin)))
        first = begin
    return found


def _python(text: str, start: int, begin: int) -> FoundCall:
    span, code = (start, len(text)), text[begin:].strip()
    call = _PYTHON.match(code)
    name = call[1] if call else ""
    try:
        tree = ast.parse(f"f({call[2]})" if call else "None", mode="eval").body
        named = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args
        pairs = [(e.arg or "", ast.literal_eval(e.value)) for e in getattr(tree, "keywords", ())]
        arguments = written(no_repeats(pairs))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return unread(span, code, name)
    if not named or any(not key for key, _ in pairs):
        return unread(span, code, name)
    return FoundCall(span=span, name=name, arguments=arguments)


def xml(text: str, start: int) -> list[FoundCall]:
    """``<tool_call><function=name><parameter=key>value</parameter></function></tool_call>``:
    Qwen3-Coder, Qwen3.5 and later.
    """
    return _tagged(text, start, _XML, _XML_NEXT, _XML_NAME, ("<parameter=",))


def glm(text: str, start: int) -> list[FoundCall]:
    """``<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>``: GLM 4.5
    and later.
    """
    return _tagged(text, start, _GLM, _GLM_NEXT, _GLM_NAME, ("<arg_key>", "<arg_value>"))


def _tagged(
    text: str,
    start: int,
    whole: re.Pattern[str],
    following: re.Pattern[str],
    name: re.Pattern[str],
    opening: tuple[str, ...],
) -> list[FoundCall]:
    """Calls whose values are texts between tags.

    A value may have closing tags, which then are no ends: a call reaches to the last
    ``</tool_call>`` before the next call. One with an opening tag can't be told from a call with a
    forgotten closing tag, so it is not read.

    Args:
        text: the answer.
        start: where to begin.
        whole: a call without the outer tags: its name, the first key, and what follows up to the
            last value's end.
        following: what is between a value and the next, with its key.
        name: the name of a call that can't be read.
        opening: tags that no value may have.
    """
    outer, close = "<tool_call>", "</tool_call>"
    found: list[FoundCall] = []
    while (begin := text.find(outer, start)) >= 0:
        inner = begin + len(outer)
        following_call = text.find(outer, inner)
        limit = following_call if following_call >= 0 else len(text)
        end = text.rfind(close, inner, limit)
        start = end + len(close) if end >= 0 else limit
        body = text[inner : end if end >= 0 else limit].strip()
        match = whole.fullmatch(body) if end >= 0 else None
        values = _values(match, following) if match else None
        if match is None or values is None or any(o in v for v in values.values() for o in opening):
            head = name.match(body)
            found.append(unread((begin, start), body, head[1].strip() if head else ""))
            continue
        arguments = written(values)
        span = (begin, start)
        found.append(FoundCall(span=span, name=match[1].strip(), arguments=arguments, untyped=True))
    return found


def _values(match: re.Match[str], following: re.Pattern[str]) -> dict[str, str] | None:
    """The values by their keys; None where a key occurs twice."""
    if match[2] is None:
        return {}
    first, *rest = following.split(match[3])
    keys, values = [match[2], *rest[::2]], [first, *rest[1::2]]
    if len({*keys}) < len(keys):
        return None
    return dict(zip(keys, map(_line_trimmed, values), strict=True))


def _line_trimmed(value: str) -> str:
    """Without the line breaks that templates put around a value."""
    return value.removeprefix("\n").removesuffix("\n")


def deepseek(text: str, start: int) -> list[FoundCall]:
    """Calls between ``<｜tool▁call▁begin｜>`` and ``<｜tool▁call▁end｜>``, with the name before or
    after ``<｜tool▁sep｜>``: DeepSeek V3, R1 and V3.1.
    """
    first, last = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
    outer, after = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    found: list[FoundCall] = []
    while (begin := text.find(first, start)) >= 0:
        close = text.find(last, begin)
        end = close if close >= 0 else len(text)
        head, _, body = text[begin + len(first) : end].partition("<｜tool▁sep｜>")
        fenced = _FENCE.match(body)
        name, arguments = (fenced[1], fenced[2]) if fenced else (head.strip(), body.strip())
        if text.startswith(outer, begin - len(outer)):
            begin -= len(outer)
        start = min(len(text), end + len(last))
        if text.startswith(after, blank_end(text, start)):
            start = blank_end(text, start) + len(after)
        found.append(_in_json((begin, start), name, arguments))
    return found


def _in_json(span: Span, name: str, text: str, otherwise: str | None = None) -> FoundCall:
    """A call with its arguments in JSON; for other text `otherwise`, or else the text unchanged."""
    try:
        return FoundCall(span=span, name=name, arguments=written(DECODER.decode(text)))
    except (ValueError, RecursionError):
        return unread(span, text if otherwise is None else otherwise, name)


def harmony(text: str, start: int) -> list[FoundCall]:
    """Messages to ``functions.name``, or to ``name``: gpt-oss."""
    return [
        _in_json(each.span(), to[1], each["body"].strip())
        for each in _HARMONY.finditer(text, start)
        if (to := _RECIPIENT.search(each["header"])) and to[1] not in _PEOPLE
    ]


def _analysis(text: str) -> tuple[str | None, int]:
    """The bodies of messages on the channel ``analysis``."""
    bodies = [each["body"].strip() for each in _HARMONY.finditer(text) if _is_analysis(each)]
    return ("\n".join(bodies) or None), 0


def _is_analysis(message: re.Match[str]) -> bool:
    return "<|channel|>analysis" in message["header"]


def _frames(text: str, start: int) -> list[Span]:
    """The headers and ends of messages, and all of the channel ``analysis``."""
    spans: list[Span] = []
    for each in _HARMONY.finditer(text, start):
        (begin, stop), (first, last) = each.span(), each.span("body")
        spans += [(begin, stop)] if _is_analysis(each) else [(begin, first), (last, stop)]
    return spans


def gemma(text: str, start: int) -> list[FoundCall]:
    """``<|tool_call>call:name{key:<|"|>text<|"|>,other:3}<tool_call|>``: Gemma 4."""
    found: list[FoundCall] = []
    while (begin := text.find("<|tool_call>", start)) >= 0:
        close = text.find("<tool_call|>", begin)
        start = close + len("<tool_call|>") if close >= 0 else len(text)
        body = text[begin + len("<|tool_call>") : close if close >= 0 else len(text)].strip()
        name, brace, rest = body.removeprefix("call:").partition("{")
        written_so = brace + rest
        values = "" if "\0" in written_so else _gemma(written_so)
        found.append(_in_json((begin, start), name, values, otherwise=written_so))
    return found


def _gemma(text: str) -> str:
    """Values in Gemma's notation, as JSON."""
    texts: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        texts.append(match[1])
        return f'"\0{len(texts) - 1}\0"'

    keyed = _GEMMA_KEY.sub(r'\1"\2"\3', _GEMMA_TEXT.sub(put_aside, text))
    return re.sub(r'"\0(\d+)\0"', lambda match: json.dumps(texts[int(match[1])]), keyed)


def _thought(text: str) -> tuple[str | None, int]:
    """A leading ``<|channel>thought ... <channel|>`` of Gemma 4."""
    begin = blank_end(text, 0)
    if not text.startswith("<|channel>thought", begin):
        return None, 0
    close = text.find("<channel|>", begin)
    stop = close + len("<channel|>") if close >= 0 else len(text)
    return text[begin + len("<|channel>thought") : close if close >= 0 else stop].strip(), stop


def _nine(name: str) -> str:
    """An id of nine letters and digits, as Mistral's templates require."""
    kept = "".join(letter for letter in name if letter.isalnum())
    return name if len(name) == 9 == len(kept) else kept.rjust(9, "0")[-9:]


FORMATS: Mapping[str, Format] = {
    "hermes": Format(hermes),
    "llama3": Format(llama3),
    "mistral": Format(mistral, call_id=_nine),
    "xml": Format(xml),
    "glm": Format(glm),
    "deepseek": Format(deepseek, text_arguments=True),
    "harmony": Format(harmony, reasoning=_analysis, marks=_frames),
    "gemma": Format(gemma, reasoning=_thought),
}
