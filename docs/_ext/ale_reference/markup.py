"""Small pieces of Markdown and reStructuredText."""

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Inline code in a Markdown table."""
    return f"`{text}`" if text else ""


def markdown(docstring: str | None) -> str:
    """A plain docstring as Markdown: its double backticks are single ones here."""
    return re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(docstring or ""))


def rest(text: str) -> str:
    """reStructuredText inside a Markdown page."""
    return f"```{{eval-rst}}\n{text.rstrip()}\n```\n"


def indent(text: str, by: int = 3) -> str:
    """Indent every line that is not blank."""
    return textwrap.indent(text, " " * by)


def list_table(header: Sequence[str], rows: Iterable[Sequence[str]], widths: str) -> str:
    """A reStructuredText table whose cells are reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in [header, *rows]:
        for number, cell in enumerate(row):
            mark = "*" if number == 0 else " "
            lines.append(f"   {mark} - {' '.join(cell.split())}".rstrip())
    return "\n".join(lines) + "\n"
