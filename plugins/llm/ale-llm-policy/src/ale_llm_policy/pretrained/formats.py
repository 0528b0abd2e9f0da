"""How families of models write tool calls: one function per family finds them in a text."""

import ast
import json
import re
from collections.abc import Mapping

from ale_llm_policy.pretrained.calls import (
    DECODER,
    Format,
    FoundCall,
    Span,
    blank_end,
    json_call,
    named,
    parts,
    written,
)

_XML = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_GLM = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_PYTHON = re.compile(r"(\w+)\.call\((.*)\)\s*$", re.DOTALL)
_MISTRAL = re.compile(r"\s*([\w.-]+)\[ARGS\]\s*")
_FENCE = re.compile(r"\s*(\S*)\s*```json\n(.*?)\n?```\s*$", re.DOTALL)
_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?(?P<header>(?:(?!<\|message\|>).)*)<\|message\|>"
    r"(?P<body>.*?)(?:<\|(?:end|call|return)\|>|$)",
    re.DOTALL,
)
_RECIPIENT = re.compile(r"\bto=functions\.([\w.-]+)")
_GEMMA_TEXT = re.compile(r'<\|"\|>(.*?)<\|"\|>', re.DOTALL)
_GEMMA_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.-]*)(\s*:)")


def hermes(text: str, start: int) -> list[FoundCall]:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen, the tiny policy.

    A call that is cut off, or whose closing tag is missing, ends where its JSON ends, or at the end
    of the text.
    """
    found: list[FoundCall] = []
    while (begin := text.find("<tool_call>", start)) >= 0:
        inner = begin + len("<tool_call>")
        close = text.find("</tool_call>", inner)
        name, arguments, stop = json_call(
            text, inner, close if close >= 0 else len(text), "arguments"
        )
        after = blank_end(text, stop)
        start = after + len("</tool_call>") if text.startswith("</tool_call>", after) else stop
        found.append(FoundCall(span=(begin, start), name=name, arguments=arguments))
    return found


def mistral(text: str, start: int) -> list[FoundCall]:
    """``[TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}, ...]``, up to the end of the
    text, or ``[TOOL_CALLS]name[ARGS]{...}`` for each call: Mistral.
    """
    begin = text.find("[TOOL_CALLS]", start)
    if begin < 0:
        return []
    inner = text[begin + len("[TOOL_CALLS]") :]
    try:
        values = [_argued(each) for each in inner.split("[TOOL_CALLS]")]
        if None in values:
            values = DECODER.decode(inner)
        read = [(*parts(value, "arguments"), _id(value)) for value in values]
    except (ValueError, RecursionError, TypeError):
        read = [(named(inner), inner.strip(), None)]
    edges = [begin, *([len(text)] * len(read))]
    return [
        FoundCall(span=(a, b), name=name, arguments=arguments, id=own)
        for a, b, (name, arguments, own) in zip(edges, edges[1:], read, strict=False)
    ]


def _argued(text: str) -> dict[str, object] | None:
    """A call as ``name[ARGS]{...}``."""
    head = _MISTRAL.match(text)
    return head and {"name": head[1], "arguments": DECODER.decode(text[head.end() :])}


def _id(value: object) -> str | None:
    own = value.get("id") if isinstance(value, dict) else None
    return own if isinstance(own, str) else None


def llama3(text: str, start: int) -> list[FoundCall]:
    """``{"name": ..., "parameters": {...}}`` as the whole answer, several with ``;`` between them,
    or ``<|python_tag|>`` before them or before ``name.call(key="value")``: Llama 3.1 and later.
    """
    begin = blank_end(text, start)
    tagged = text.startswith("<|python_tag|>", begin)
    if tagged:
        begin += len("<|python_tag|>")
    if not text.startswith("{", begin) or '"name"' not in text:
        return [_python(text, start, begin)] if tagged else []
    found: list[FoundCall] = []
    first = start
    while text.startswith("{", begin):
        name, arguments, stop = json_call(text, begin, len(text), "parameters")
        begin = blank_end(text, stop)
        begin = blank_end(text, begin + 1) if text.startswith(";", begin) else len(text)
        found.append(FoundCall(span=(first, begin), name=name, arguments=arguments))
        first = begin
    return found


def _python(text: str, start: int, begin: int) -> FoundCall:
    code = text[begin:].strip()
    call = _PYTHON.match(code)
    try:
        tree = ast.parse(f"f({call[2]})" if call else "", mode="eval").body
        assert isinstance(tree, ast.Call)
        values = {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
        arguments = written(values)
    except (SyntaxError, ValueError, TypeError):
        arguments = code
    name = call[1] if call else ""
    return FoundCall(span=(start, len(text)), name=name, arguments=arguments)


def xml(text: str, start: int) -> list[FoundCall]:
    """``<tool_call><function=name><parameter=key>value</parameter></function></tool_call>``:
    Qwen3-Coder, Qwen3.5 and later.
    """
    found: list[FoundCall] = []
    while (begin := text.find("<tool_call>", start)) >= 0:
        inner = blank_end(text, begin + len("<tool_call>"))
        whole = text.startswith("<function=", inner)
        end = text.find("</function>", inner)
        close = text.find("</tool_call>", end if whole and end >= 0 else inner)
        start = close + len("</tool_call>") if close >= 0 else len(text)
        body = text[inner : close if close >= 0 else len(text)]
        name = body.removeprefix("<function=").partition(">")[0].strip() if whole else ""
        found.append(_untyped((begin, start), name, body, _XML if whole and end >= 0 else None))
    return found


def glm(text: str, start: int) -> list[FoundCall]:
    """``<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>``: GLM 4.5
    and later.
    """
    found: list[FoundCall] = []
    while (begin := text.find("<tool_call>", start)) >= 0:
        inner = begin + len("<tool_call>")
        close = text.find("</tool_call>", inner)
        start = close + len("</tool_call>") if close >= 0 else len(text)
        body = text[inner : close if close >= 0 else len(text)]
        name = body.partition("<arg_key>")[0].strip()
        found.append(_untyped((begin, start), name, body, _GLM if close >= 0 else None))
    return found


def _untyped(span: Span, name: str, body: str, pattern: re.Pattern[str] | None) -> FoundCall:
    """A call whose values are texts; without a pattern, a malformed call."""
    if pattern is None:
        return FoundCall(span=span, name=name, arguments=body.strip())
    values = dict(pattern.findall(body))
    return FoundCall(span=span, name=name, arguments=written(values), untyped=True)


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
        found.append(FoundCall(span=(begin, start), name=name, arguments=_as_json(arguments)))
    return found


def _as_json(text: str, otherwise: str | None = None) -> str:
    """JSON as this package writes it; for other text `otherwise`, or else the text unchanged."""
    try:
        return written(DECODER.decode(text))
    except (ValueError, RecursionError):
        return text if otherwise is None else otherwise


def harmony(text: str, start: int) -> list[FoundCall]:
    """Messages to ``functions.name``: gpt-oss."""
    return [
        FoundCall(span=each.span(), name=to[1], arguments=_as_json(each["body"].strip()))
        for each in _HARMONY.finditer(text, start)
        if (to := _RECIPIENT.search(each["header"]))
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
        found.append(FoundCall(span=(begin, start), name=name, arguments=_gemma(brace + rest)))
    return found


def _gemma(text: str) -> str:
    """Values in Gemma's notation, as JSON."""
    texts: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        texts.append(match[1])
        return f'"\0{len(texts) - 1}\0"'

    keyed = _GEMMA_KEY.sub(r'\1"\2"\3', _GEMMA_TEXT.sub(put_aside, text))
    whole = re.sub(r'"\0(\d+)\0"', lambda match: json.dumps(texts[int(match[1])]), keyed)
    return _as_json(whole, otherwise=text)


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
