"""Which names tests take from the answer, read from their source."""

import ast
import builtins
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from ale_grading.answers import parsed_python

_BUILTIN = frozenset(dir(builtins))
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def free_names(tests: Sequence[str], setup: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that tests use, and neither they, the set-up nor Python define; sorted.

    Args:
        tests: Python texts.
        setup: Python text.

    Returns:
        The names that the answer has to define, and modules of the standard library that tests use
        (``math.isclose``) without importing them: the answer's would be judge in its own case.
    """
    trees = [parsed_python(text) for text in (*tests, setup)]
    bound = {name for tree in trees for name in _bound(tree)}
    nodes = [node for tree in trees[:-1] for node in ast.walk(tree)]
    loads = [node for node in nodes if isinstance(node, ast.Name)]
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    alone = {node.id for node in loads if id(node) not in owners}
    free = {node.id for node in loads} - bound - _BUILTIN
    modules = (free - alone) & sys.stdlib_module_names
    return tuple(sorted(free - modules)), tuple(sorted(modules))


def replaced(tests: Sequence[str]) -> tuple[str, ...]:
    """Functions of Python's library that tests may replace, as ``module.name``; sorted.

    Those in a text (``patch("builtins.print")``), assigned to (``random.random = ...``) and given
    in two parts (``patch.object(time, "sleep")``).
    """
    nodes = [node for text in tests for node in ast.walk(parsed_python(text))]
    found = {name for node in nodes for name in _replaced_by(node)}
    return tuple(sorted(name for name in found if _DOTTED.fullmatch(name) and _is_library(name)))


def combines(tests: Sequence[str], names: Collection[str]) -> bool:
    """Whether a test has an operator between an object that it makes and a value of its own.

    Such as ``Vector(1, 2) * 3``, or ``v * 3`` with ``v = Vector(1, 2)``: an object of a class of
    the answer, by the usual spelling of classes. What the answer gave for a question, as in
    ``Solution().area(3) - 9``, is none. Where any test looks whether the result is about 0 or 1
    (``abs(Average(xs) - 9) < 1e-6``), the value may be the one that is expected, and none is given.
    """
    classes = {name for name in names if name[:1].isupper()}
    trees = [parsed_python(text) for text in tests] if classes else []
    measured = any(_measures(node) for tree in trees for node in ast.walk(tree))
    return not measured and any(_combines(tree, classes) for tree in trees)


_DIFFERENCES = (ast.Sub, ast.Add, ast.Mod, ast.FloorDiv, ast.Div, ast.BitXor, ast.BitAnd)


def _measures(node: ast.AST) -> bool:
    """Whether a node compares a difference or a quotient with a small number."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
        case ast.Assert(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
            sides = [test, ast.Constant(0)]
        case _:
            return False
    small = [isinstance(side, ast.Constant) and _is_small(side.value) for side in sides]
    return any(small) and any(
        isinstance(part, ast.BinOp) and isinstance(part.op, _DIFFERENCES)
        for side in sides
        if not isinstance(side, ast.Compare | ast.BoolOp)
        for part in ast.walk(side)
    )


def _is_small(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= 1


def _combines(tree: ast.AST, classes: Collection[str]) -> bool:
    def is_made(node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in classes
            case ast.Name(id=name):
                return name in variables
            case ast.BinOp(left=left, right=right):
                return is_made(left) or is_made(right)
        return False

    variables: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value) if is_made(value):
                variables.update(each.id for each in targets if isinstance(each, ast.Name))
    changed = [node for node in ast.walk(tree) if isinstance(node, ast.AugAssign)]
    if any(is_made(node.target) != is_made(node.value) for node in changed):
        return True
    return any(
        is_made(node.left) != is_made(node.right)
        if isinstance(node, ast.BinOp)
        else isinstance(node.func, ast.Name)
        and node.func.id in ("sum", "divmod", "pow")
        and any(is_made(part) for part in ast.walk(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp | ast.Call)
    )


def classes(
    tests: Sequence[str], names: Collection[str], told: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the answer that are those of classes, and more that may be; sorted.

    An object that a test makes of such a class may be given what it is compared with:
    ``Money(3) == 3``. A capital letter alone does not tell a class from a function, as in
    ``Extract([[1, 2]]) == [1]``, where the value is the one that is asked for. So a test has to use
    the name as only a class is used: ``isinstance(x, Money)``, ``Money.parse``, ``Money()``,
    ``Money(3).cents``; or what the agent was told says so (``class Money``). Else
    it is open, but for a single capital (``Extract``) where a function is asked for.

    Args:
        told: the task's goal and set-up.
    """
    capital = {name for name in names if name[:1].isupper()}
    found: set[str] = set()
    for tree in [parsed_python(text) for text in tests] if capital else []:
        nodes = list(ast.walk(tree))
        made = {
            target.id: node.value.func.id
            for node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        found.update(name for node in nodes for name in _used_as_class(node, made))
    found.update(name for name in capital if _told(rf"class\s+`?{name}\b|\b{name}`?\s+class", told))
    functions = {name for name in capital if _told(rf"def\s+{name}\b", told)}
    if _told(r"functions?\b", told) and not _told(r"class(es)?\b", told):
        functions |= {name for name in capital if not _CLASS_NAME.fullmatch(name)}
    return tuple(sorted(found & capital)), tuple(sorted(capital - found - functions))


def _told(pattern: str, text: str) -> bool:
    return re.search(rf"\b(?:{pattern})", text) is not None


_CLASS_NAME = re.compile(r"[A-Z]|[A-Z][a-z0-9]+([A-Z][a-z0-9]*)+")
_OF_VALUES = frozenset(
    name for kind in (int, float, str, bytes, list, tuple, dict, set, range) for name in dir(kind)
)


def _used_as_class(node: ast.AST, made: Mapping[str, str]) -> Iterator[str]:
    """Args: node: of a test. made: by variable, the name that was called for its value."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            yield from (each.id for each in ast.walk(kinds) if isinstance(each, ast.Name))
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            yield name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            if attribute not in _OF_VALUES or name not in made:
                yield made.get(name, name)
        case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=attribute):
            if attribute not in _OF_VALUES:
                yield name
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from (
                item.context_expr.func.id
                for item in items
                if isinstance(item.context_expr, ast.Call)
                and isinstance(item.context_expr.func, ast.Name)
            )
        case _:
            return


def unsupported(tests: Sequence[str], names: Collection[str]) -> str | None:
    """A construct of tests that can't be run for any answer; None if there is none."""
    for node in (node for text in tests for node in ast.walk(parsed_python(text))):
        match node:
            case ast.MatchClass(cls=ast.Name(id=name)) if name in names:
                return f"`case {name}(...)` of a class that the answer defines"
    return None


def _replaced_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Attribute(ctx=ast.Store()):
            yield ast.unparse(node)
        case ast.Attribute(attr="seed") | ast.alias(name="seed"):
            yield "random.seed"
        case ast.Call(
            args=[ast.Name() | ast.Attribute() as owner, ast.Constant(value=str(name)), *_]
        ):
            yield f"{ast.unparse(owner)}.{name}"
        case _:
            return


def _is_library(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names and not name.startswith("sys.std")


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
