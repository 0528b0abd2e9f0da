"""Code in a model's text."""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale_grading.answers.extracted import Extracted, without_reasoning

PYTHON = ("python", "python3", "py")
"""The tags of a block of Python, in lower case."""

LONGEST = 1 << 20
"""A longer text without a block is never parsed to see whether it is code."""

_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<tag>[^\s`{]*+)[^`]*+")


@frozen
class CodeBlock:
    """A fenced block of Markdown."""

    tag: str
    """The language after the opening fence, in lower case; empty without one."""
    text: str
    first_line: int
    """1-based line of the opening fence, in the text without its reasoning."""
    last_line: int
    """The line of the closing fence, or of the text's end."""
    closed: bool

    @property
    def source(self) -> str:
        """Where it stands, for people."""
        kind = f"tagged {self.tag}" if self.tag else "without a tag"
        end = "" if self.closed else ", no closing fence"
        return f"the last code block {kind} (lines {self.first_line} to {self.last_line}{end})"


def code_blocks(text: str) -> tuple[CodeBlock, ...]:
    """The fenced blocks that are not blank, in order.

    A fence with a tag inside a block opens the next block: the one before was not closed. So does
    the end of the text. The indentation of the opening fence is removed from the block's lines.
    """
    return tuple(block for block in _blocks(without_reasoning(text)) if block.text.strip())


def _blocks(text: str) -> Iterator[CodeBlock]:
    opened: re.Match[str] | None = None
    first = 0
    lines: list[str] = []
    number = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        found = _FENCE.fullmatch(line)
        if opened is None:
            opened, first, lines = found, number, []
        elif found is None or not _same_fence(opened, found):
            lines.append(line)
        elif found["tag"]:
            yield _block(opened, lines, first, number - 1, closed=False)
            opened, first, lines = found, number, []
        else:
            yield _block(opened, lines, first, number, closed=True)
            opened = None
    if opened is not None:
        yield _block(opened, lines, first, number, closed=False)


def _same_fence(opened: re.Match[str], found: re.Match[str]) -> bool:
    """A fence inside a string of the block's code is indented further, or is shorter."""
    return found["fence"].startswith(opened["fence"]) and len(found["indent"]) <= 3 + len(
        opened["indent"]
    )


def _block(
    opened: re.Match[str], lines: Sequence[str], first: int, last: int, *, closed: bool
) -> CodeBlock:
    indent = opened["indent"]
    text = "\n".join(line.removeprefix(indent) for line in lines)
    return CodeBlock(opened["tag"].lower(), text, first, last, closed)


def code(text: str, tags: Sequence[str] = PYTHON) -> Extracted | None:
    """The last code block with one of the tags, or else the last one without a tag.

    A text without any block is taken whole if it is Python: it parses, also as the indented body
    of a function, and is more than names and literals (as ``Sure`` would be). Blocks in other
    languages are never taken.

    Args:
        text: a message of the model.
        tags: languages, in lower case.
    """
    blocks = code_blocks(text)
    tagged = [block for block in blocks if block.tag in tags]
    chosen = tagged or [block for block in blocks if not block.tag]
    if chosen:
        return Extracted(chosen[-1].text, chosen[-1].source)
    plain = without_reasoning(text).strip("\n")
    if not blocks and is_python(plain):
        return Extracted(plain, "the whole message, which is code without a fence")
    return None


def answer_code(messages: Sequence[str], tags: Sequence[str] = PYTHON) -> Extracted | None:
    """The code of the last message that has any.

    Args:
        messages: the model's messages, oldest first.
        tags: languages, in lower case.
    """
    for i in range(len(messages) - 1, -1, -1):
        if found := code(messages[i], tags):
            place = "" if len(messages) == 1 else f" of message {i + 1} of {len(messages)}"
            return Extracted(found.text, found.source + place)
    return None


def is_python(text: str) -> bool:
    """Whether it parses and does something; nothing of it is run."""
    if len(text) > LONGEST:
        return False
    indented = text[:1].isspace()
    if indented:
        text = "def _():\n" + textwrap.indent(textwrap.dedent(text), " ")
    try:
        statements = parsed_python(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if indented and isinstance(statements[0], ast.FunctionDef):
        statements = statements[0].body
    return any(_does_something(statement) for statement in statements)


def parsed_python(text: str) -> ast.Module:
    r"""A text parsed as Python, without warnings of such things as ``'\d'``.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it can't be.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _does_something(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return True
