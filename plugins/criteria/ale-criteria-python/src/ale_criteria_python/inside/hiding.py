"""Which exceptions of a test a context manager of the answer may hide."""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any


def may_hide(error: BaseException, trace: Any, test: str, names: Collection[str]) -> bool:
    """Whether nothing is judged by what raised it, and nothing in the context after it.

    Otherwise an answer could hide what fails: ``with timer(): assert f(3) == 9``.

    Args:
        trace: from the frame of the context on.
        test: the source of the test.
        names: of the answer.
    """
    import ast

    if isinstance(error, AssertionError) or trace is None:
        return False
    tree, line = ast.parse(test), trace.tb_lineno
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    known = {*dir(builtins), *names} - {*functions}
    known |= {name for name, node in functions.items() if not judges(node)}
    contexts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.With, ast.AsyncWith)) and holds(node, line)
    ]
    skipped = [each for node in contexts for each in node.body if holds(each, line, after=True)]
    inner = [each for each in skipped if not isinstance(each, (ast.With, ast.AsyncWith))]
    return bool(inner) and all(is_harmless(each, known) for each in inner)


def holds(node: Any, line: int, after: bool = False) -> bool:
    """Whether a statement is on a line, or also whether it comes after it."""
    return bool(node.end_lineno >= line and (after or node.lineno <= line))


def judges(function: Any) -> bool:
    """Whether a function of the tests decides something, and does more than to raise."""
    import ast

    return any(
        isinstance(node, (ast.Assert, ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Try, ast.Call))
        for statement in function.body
        if not isinstance(statement, ast.Raise)
        for node in ast.walk(statement)
    )


def is_harmless(statement: Any, known: Collection[str]) -> bool:
    """Whether a statement only raises, or only calls the answer or what is builtin."""
    import ast

    if isinstance(statement, (ast.Raise, ast.Pass)):
        return True
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and not statement.test.value
    if not isinstance(statement, (ast.Expr, ast.Assign)):
        return False
    used = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
    return used <= {*known}
