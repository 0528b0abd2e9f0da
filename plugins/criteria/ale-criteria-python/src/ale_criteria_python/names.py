"""Which names tests take from the answer, read from their source."""

import ast
import builtins
from collections.abc import Iterator, Sequence

_BUILTIN = frozenset(dir(builtins))


def free_names(tests: Sequence[str], setup: str) -> tuple[str, ...]:
    """The names that tests use, and neither they, the set-up nor Python define; sorted.

    Args:
        tests: Python texts.
        setup: Python text.
    """
    trees = [ast.parse(text) for text in (*tests, setup)]
    bound = {name for tree in trees for name in _bound(tree)}
    used = {
        node.id
        for tree in trees[:-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del)
    }
    return tuple(sorted(used - bound - _BUILTIN))


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        yield from _bound_by(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.arg(arg=name):
            yield name
        case ast.ExceptHandler(name=str(name)):
            yield name
        case _:
            return
