"""Small pieces of Markdown, and docstrings as Markdown."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef

_SECTION = re.compile(r"(Args|Attributes|Examples?|Raises(?: \(on entry\))?|Returns|Yields):")
_WIDTH = 88


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Inline code in a Markdown table."""
    if "`" not in text:
        return f"`{text}`" if text else ""
    marks = "`" * (max(map(len, re.findall("`+", text))) + 1)
    return f"{marks} {text} {marks}"


def markdown(docstring: str | None) -> str:
    """A docstring as Markdown: single backticks, and sections as lists."""
    text = re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(docstring or ""))
    return "\n".join(_lines(text.splitlines())).strip()


def _lines(lines: Sequence[str]) -> Iterator[str]:
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        block = _block(lines[number:])
        section = _SECTION.fullmatch(line)
        if section and block:
            yield from _section(section[1], textwrap.dedent("\n".join(block)).splitlines())
        elif line.endswith("::") and block:
            yield from (line[:-1], "", "```text")
            yield from textwrap.dedent("\n".join(block)).strip("\n").splitlines()
            yield from ("```", "")
        else:
            yield line
            continue
        number += len(block)


def _block(lines: Sequence[str]) -> list[str]:
    """The indented lines that follow, with the blank ones between and after them."""
    found = []
    for line in lines:
        if line.strip() and not line.startswith(" "):
            break
        found.append(line)
    return found if any(line.strip() for line in found) else []


def _section(name: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"**{name}**"
    yield ""
    if name.startswith("Example"):
        yield from ("```python", *lines, "```", "")
        return
    for line in lines:
        entry = None if name in ("Returns", "Yields") else re.match(r"(\*{0,2}[\w.]+): ", line)
        yield f"- `{entry[1]}`: {line[entry.end() :]}" if entry else line
    yield ""


def signature(node: Function) -> str:
    """How a function is called, as its source has it, in a block of code."""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parts = list(_parameters(node.args))
    text = f"{keyword} {node.name}({', '.join(parts)}){returns}"
    if len(text) > _WIDTH:
        inner = "".join(f"    {part},\n" for part in parts)
        text = f"{keyword} {node.name}(\n{inner}){returns}"
    return f"```python\n{text}\n```\n\n"


def _parameters(args: ast.arguments) -> Iterator[str]:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + args.defaults
    for number, (arg, default) in enumerate(zip(plain, defaults, strict=True), 1):
        if arg.arg not in ("self", "cls"):
            yield _parameter(arg, default)
        if number == len(args.posonlyargs):
            yield "/"
    if args.vararg:
        yield f"*{ast.unparse(args.vararg)}"
    elif args.kwonlyargs:
        yield "*"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(arg, default)
    if args.kwarg:
        yield f"**{ast.unparse(args.kwarg)}"


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if arg.annotation else "="
    return ast.unparse(arg) + (f"{equals}{ast.unparse(default)}" if default else "")
