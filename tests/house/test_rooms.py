"""Rooms are small, and the house has no rooms of unknown use."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOM = 500
CORE = 4000

PYTHON = [
    path
    for folder in ("core", "plugins", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(part.startswith((".", "_build")) for part in path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_at_most_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= ROOM


def code_lines(source: str) -> int:
    """Lines with code on them: neither blank, nor comment, nor docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant):
                documented |= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in empty:
            used |= set(range(token.start[0], token.end[0] + 1))
    return len(used - documented)


def test_code_lines_leave_out_what_is_no_code() -> None:
    assert code_lines('"""Doc."""\n\n# why\nx = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n') == 4


def test_the_core_stays_under_4000_lines_of_code() -> None:
    files = [p for p in (ROOT / "core/src/ale").rglob("*.py") if "testing" not in p.parts]
    assert len(files) > 40
    assert sum(code_lines(path.read_text()) for path in files) <= CORE


def test_nothing_else_stands_at_the_top() -> None:
    names = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert names - {"runs", "uv.lock", "build", "dist", "__pycache__"} == {
        "LICENSE",
        "README.md",
        "configs",
        "core",
        "docs",
        "noxfile.py",
        "plugins",
        "pyproject.toml",
        "tasks",
        "tests",
    }
