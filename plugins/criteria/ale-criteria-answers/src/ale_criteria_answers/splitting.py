"""Takes formulas apart: lists, brackets, equations, matrices, and what plus-minus stands for."""

import re
from collections.abc import Iterator

from attrs import frozen

_TOKEN = re.compile(r"\\(?:left|right)?\s*\\?[\[\](){}]|\\[a-zA-Z]+|\\.|.", re.DOTALL)
_OPEN = {"(": "(", "[": "[", "{": "{", "\\{": "\\{"}
_SHUT = {")": ")", "]": "]", "}": "}", "\\}": "\\}"}
_JOIN = re.compile(
    r"\\(?:text|mathrm|mbox|textrm)\{\s*,?\s*(?:or|and)\s*\}|(?<![a-zA-Z\\])(?:or|and)(?![a-zA-Z])"
)
_EQUALS = re.compile(r"=|\\equiv(?![a-zA-Z])")
_ABOUT = re.compile(r"\\approx(?![a-zA-Z])|≈")
_PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z])|\\mp(?![a-zA-Z])")
_MATRIX = re.compile(
    r"\\begin\{(?P<kind>[pbvBV]?matrix|array)\}(?:\{[lcr|\s]*\})?(?P<body>.*)"
    r"\\end\{(?P=kind)\}",
    re.DOTALL,
)
_STYLE = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}"
)
_WORD = re.compile(r"[^\W\d_]{2,}(?:[\s'’-]+[^\W\d_]+)*")
_CONSTANT = frozenset({"pi", "sqrt", "sin", "cos", "tan", "ln", "log", "exp", "infty", "infinity"})


_RELATION = re.compile(r"\s*(<=?|>=?|≤|≥|\\leq?(?![a-zA-Z])|\\geq?(?![a-zA-Z]))\s*")
_NAME = re.compile(r"[a-zA-Z]")
_BELOW = frozenset({"<", "<=", "≤", "\\le", "\\leq"})
_TURNED = {
    **{"<": ">", "<=": ">=", "≤": "≥", "\\le": "\\ge", "\\leq": "\\geq"},
    **{">": "<", ">=": "<=", "≥": "≤", "\\ge": "\\le", "\\geq": "\\leq"},
}


@frozen
class Enclosed:
    """A text without the brackets around the whole of it."""

    inner: str
    marks: str
    """The two brackets, such as ``[)``; empty without any."""


@frozen
class Matrix:
    """The entries of a matrix."""

    kind: str
    """``v`` for a determinant, else empty."""
    rows: tuple[tuple[str, ...], ...]


def _leveled(text: str) -> Iterator[tuple[int, str, int]]:
    """Every token with its place, and the depth of brackets in front of it."""
    depth = 0
    for found in _TOKEN.finditer(text):
        mark = _bracket(found[0])
        if mark in _SHUT:
            depth -= 1
        yield found.start(), found[0], depth
        if mark in _OPEN:
            depth += 1


def _bracket(token: str) -> str:
    return re.sub(r"^\\(?:left|right)\s*", "", token)


def elements(text: str) -> list[str]:
    """The parts between the commas, semicolons, "or" and "and" outside of all brackets."""
    if _MATRIX.search(text):
        return [text]
    text = _JOIN.sub(" , ", text)
    parts, begin = [], 0
    for at, token, depth in _leveled(text):
        if depth == 0 and token in (",", ";"):
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return [part.strip() for part in parts if part.strip()] or [text]


def sides(text: str) -> list[str]:
    """The sides of an equation, or of a chain of some.

    What a number is about is left out, and what a name is about is taken.
    """
    exact, *about = _ABOUT.split(text, maxsplit=1)
    text = f"{exact}={about[0]}" if about and re.fullmatch(r"\s*[a-zA-Z]\s*", exact) else exact
    cuts = [found.span() for found in _EQUALS.finditer(text)]
    deep = {at: depth for at, _, depth in _leveled(text)}
    cuts = [(begin, end) for begin, end in cuts if deep.get(begin, 0) == 0]
    parts, last = [], 0
    for begin, end in cuts:
        parts.append(text[last:begin])
        last = end
    parts.append(text[last:])
    return [part.strip() for part in parts if part.strip()] or [text]


def about_of(text: str) -> tuple[str, str]:
    """The number in front of the first "about", and the one behind it; empty without one."""
    exact, *about = _ABOUT.split(text)
    return (sides(exact)[-1], about[0].strip()) if about else ("", "")


def enclosed(text: str) -> Enclosed:
    """The text within the brackets around the whole of it, if there are some."""
    text = text.strip()
    tokens = list(_leveled(text))
    if len(tokens) < 2:
        return Enclosed(text, "")
    opened, shut = _bracket(tokens[0][1]), _bracket(tokens[-1][1])
    whole = all(depth > 0 for _, _, depth in tokens[1:-1]) and tokens[-1][2] == 0
    if opened not in _OPEN or shut not in _SHUT or not whole:
        return Enclosed(text, "")
    inner = text[len(tokens[0][1]) : tokens[-1][0]]
    marks = opened + shut
    return enclosed(inner) if marks == "{}" else Enclosed(inner, marks)


def interval_of(text: str) -> str:
    """The interval that ``x < 3`` or ``1 \\le x < 3`` stands for; the text of anything else."""
    parts = _RELATION.split(text.strip())
    if len(parts) == 3 and not _NAME.fullmatch(parts[0]):
        parts = [parts[2], _TURNED[parts[1]], parts[0]] if parts[1] in _TURNED else parts
    if len(parts) == 3 and _NAME.fullmatch(parts[0]) and parts[1] in _TURNED:
        below, closed = parts[1] in _BELOW, parts[1] not in "<>"
        if below:
            return f"(-\\infty,{parts[2]}{']' if closed else ')'}"
        return f"{'[' if closed else '('}{parts[2]},\\infty)"
    if len(parts) == 5 and _NAME.fullmatch(parts[2]) and {parts[1], parts[3]} <= _BELOW:
        first, last = "(" if parts[1] == "<" else "[", ")" if parts[3] == "<" else "]"
        return f"{first}{parts[0]},{parts[4]}{last}"
    return text


def alternatives(text: str) -> list[str]:
    """Both values of a text with plus-minus; the text itself without one."""
    text = text.replace("±", r"\pm ").replace("∓", r"\mp ")
    if not _PLUS_MINUS.search(text):
        return [text]
    upper = text.replace(r"\pm", "+").replace(r"\mp", "-")
    lower = text.replace(r"\pm", "-").replace(r"\mp", "+")
    # "x = +3": the sign in front of a number is none of its digits.
    return [re.sub(r"(^|[=,(])\s*\+", r"\1", each) for each in (upper, lower)]


def matrix_of(text: str) -> Matrix | None:
    """The entries, if the text is a matrix."""
    found = _MATRIX.fullmatch(text.strip())
    if found is None or r"\begin" in found["body"]:
        return None
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", found["body"]) if row.strip()]
    cells = tuple(tuple(cell.strip() for cell in row.split("&")) for row in rows)
    return Matrix("v" if found["kind"] in ("vmatrix", "Vmatrix") else "", cells)


def words_of(text: str) -> str | None:
    """The words of a text that is nothing else, such as ``\\text{east}``, ``(B)`` or ``east``."""
    bare = _STYLE.sub(r"\1", text)
    inner = re.sub(r"\s+", " ", bare).strip().strip("().,!:\"'$ ")
    if bare != text and inner and not re.search(r"[\d\\+*/^=<>]", inner):
        return inner
    if re.fullmatch(r"\(?[A-Z]\)?[.)]?", text.strip()):
        return inner
    words = _WORD.fullmatch(inner)
    return inner if words and inner.casefold() not in _CONSTANT else None
