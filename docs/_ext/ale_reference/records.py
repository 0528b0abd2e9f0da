"""The public modules: records as tables of their fields, functions by their signatures."""

import ast
import functools
import importlib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
from attrs import frozen

from ale._registry import Registry
from ale_reference.markup import Function, markdown, signature, table

FRONT = ("run", "arun", "resume", "aresume")
"""Functions of `ale` itself."""
MODULES = (
    "plugin",
    "functions",
    "agents",
    "sandboxes",
    "judging",
    "workspaces",
    "folders",
    "observers",
    "errors",
    "strict",
    "runs",
    "workers",
    "middleware",
    "recording",
    "processes",
    "learning",
    "attempts",
    "intervals",
    "text",
    "files",
    "testing.builders",
    "testing.fakes",
    "testing.played",
    "testing.waiting",
)
# In the order in which data passes through them.
TYPES = (
    "task",
    "sandbox",
    "message",
    "trajectory",
    "episode",
    "chunk",
    "credit",
    "note",
    "training",
    "job",
    "event",
    "_record",
)
PROTOCOLS = (
    *("task", "sandbox", "llm", "agent", "start", "training", "objective", "executor", "launcher"),
    "middleware",
    "members",
)
TITLES = {
    "task": "Tasks",
    "sandbox": "Sandboxes",
    "llm": "Models",
    "agent": "Agents",
    "start": "Starts",
    "message": "Messages and completions",
    "trajectory": "Trajectories",
    "episode": "Episodes",
    "chunk": "Chunks",
    "credit": "Groups and credit",
    "note": "Notes",
    "training": "Training",
    "executor": "Executors",
    "objective": "Objectives",
    "launcher": "Launchers",
    "middleware": "Middleware",
    "members": "Members",
    "job": "Jobs",
    "event": "Events",
    "_record": "Making a record",
}

_ATTRIBUTES = "\nAttributes:"
_PLAIN_BASES = ("object", "Protocol", "Generic")


@frozen
class Field:
    """One field of an attrs class, as its source has it."""

    name: str
    type: str
    default: str | None
    doc: str


def fields(cls: type) -> list[Field]:
    """The fields of an attrs class with the text that stands below each."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    made = []
    following = [*tree.body[1:], ast.Pass()]
    for statement, after in zip(tree.body, following, strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = after.value if isinstance(after, ast.Expr) else None
            doc = value.value if isinstance(value, ast.Constant) else ""
            annotation = ast.unparse(statement.annotation)
            default = _default(statement.value)
            made.append(Field(statement.target.id, annotation, default, inspect.cleandoc(str(doc))))
    return made


def _default(value: ast.expr | None) -> str | None:
    """The default as text; None for a field that must be given."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        if "factory" in given:
            return {"dict": "{}", "list": "[]"}.get(given["factory"], "made anew")
        return given.get("default")
    return None if value is None else ast.unparse(value)


def parts(registry: Registry, root: Path) -> Mapping[str, str]:
    """``types``, ``protocols``, and a part for each of the other public modules."""
    made = {"types": _package("types", TYPES)}
    made["protocols"] = _package("protocols", PROTOCOLS)
    made["ale"] = "".join(document("ale", name) for name in FRONT)
    for name in MODULES:
        module = importlib.import_module(f"ale.{name}")
        text = "".join(document(module.__name__, each) for each in _names(module))
        made[name.replace(".", "-")] = text
    return made


def _package(name: str, modules: Sequence[str]) -> str:
    """A package whose names are public in itself, under a heading for each of its modules."""
    package = f"ale.{name}"
    left, parts = list(importlib.import_module(package).__all__), []
    for part in modules:
        module = importlib.import_module(f"{package}.{part}")
        parts.append(f"## {TITLES[part]}\n\n")
        here = [name for name in vars(module) if name in left and _is_from(module, name)]
        parts += [document(package, name) for name in here]
        left = [name for name in left if name not in here]
    if left:
        raise RuntimeError(f"no page for {left}")
    return "".join(parts)


def _is_from(module: ModuleType, name: str) -> bool:
    """Is it made in this module? An alias of a type does not know; there, who has it first."""
    home = getattr(vars(module)[name], "__module__", "typing")
    return home in (module.__name__, "typing", "builtins")


def _names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        names: list[str] = list(module.__all__)
        return names
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def document(module: str, name: str) -> str:
    """One public name of a module."""
    value = getattr(importlib.import_module(module), name)
    return f"### `{name}`\n\n" + "".join(_said(module, name, value))


def _said(module: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(value)
    elif inspect.isroutine(value):
        yield from described(value)
    elif typing.get_origin(value) is typing.Literal:
        yield f"One of {', '.join(f'`{word}`' for word in typing.get_args(value))}.\n\n"
    elif isinstance(value, int):
        yield f"`{name} = {value}`\n\n"
    elif isinstance(value, Mapping):
        yield f"With the keys {', '.join(f'`{key}`' for key in value)}.\n\n"
    yield _said_of_data(module, name)


def _said_of_data(module: str, name: str) -> str:
    """The text below a name in the module that makes it, or in one that the module imports from."""
    for home in (module, *_submodules(module)):
        body = ast.parse(inspect.getsource(importlib.import_module(home))).body
        for statement, after in zip(body, [*body[1:], ast.Pass()], strict=True):
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign):
                targets = [statement.target]
            if name in [each.id for each in targets if isinstance(each, ast.Name)]:
                return _below(after)
    return ""


def _submodules(module: str) -> list[str]:
    parts = {"ale.types": TYPES, "ale.protocols": PROTOCOLS}.get(module, ())
    return [f"{module}.{part}" for part in parts]


def _below(statement: ast.stmt) -> str:
    """The text that stands as a statement of its own below a name."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return f"{markdown(value.value)}\n\n"
    return ""


def described(value: Any) -> Iterator[str]:
    """The signature and the docstring of a function."""
    found = inspect.unwrap(value)
    if not str(getattr(found, "__module__", "")).startswith("ale"):
        # Of another package, which has a reference of its own.
        yield f"{markdown((inspect.getdoc(found) or '').partition(chr(10))[0])}\n\n"
        return
    node = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
    assert isinstance(node, Function)
    yield from _method(node)


def _method(node: Function) -> Iterator[str]:
    yield signature(node)
    text = markdown(ast.get_docstring(node))
    if text:
        yield f"{text}\n\n"


def _class(cls: type) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base.__name__ not in _PLAIN_BASES]
    if bases:
        yield f"Extends {', '.join(f'`{base}`' for base in bases)}.\n\n"
    # A subclass without a docstring would show that of its base.
    about = inspect.cleandoc(vars(cls).get("__doc__") or "")
    if about and not about.startswith("Method generated by attrs"):
        # The table below has what the docstring says of each field.
        yield f"{markdown(about.partition(_ATTRIBUTES)[0])}\n\n"
    if attrs.has(cls):
        yield from _fields(cls)
    yield from _members(cls)


def _fields(cls: type) -> Iterator[str]:
    told = _told(inspect.getdoc(cls) or "")
    rows = [
        [
            f"`{field.name}`",
            _type(field.type),
            "required" if field.default is None else f"`{field.default}`",
            markdown(field.doc or told.get(field.name, "")),
        ]
        for field in fields(cls)
    ]
    if rows:
        yield table(["field", "type", "default", "what it is"], rows) + "\n"


def _members(cls: type) -> Iterator[str]:
    """Methods, properties and, of a class that is no record, attributes."""
    node = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(node, ast.ClassDef)
    for member, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(member, Function) and not member.name.startswith("_"):
            yield from _method_of(node.name, member)
        elif isinstance(member, ast.AnnAssign) and not attrs.has(cls):
            name = ast.unparse(member.target)
            if not name.startswith("_"):
                yield f"#### `{node.name}.{name}`\n\n{_type(ast.unparse(member.annotation))}\n\n"
                yield _below(after)


def _method_of(owner: str, node: Function) -> Iterator[str]:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    yield f"#### `{owner}.{node.name}`\n\n"
    if "property" not in decorators:
        yield from _method(node)
        return
    kind = _type(ast.unparse(node.returns)) if node.returns else ""
    yield f"Property: {kind}\n\n"
    text = markdown(ast.get_docstring(node))
    if text:
        yield f"{text}\n\n"


def _type(annotation: str) -> str:
    """A type, as a link to the first record that it names."""
    named = [word for word in re.findall(r"\w+", annotation) if word in _public()]
    if not named:
        return f"`{annotation}`"
    return f"[`{annotation}`]({_public()[named[0]]}.md#{named[0].lower()})"


@functools.cache
def _public() -> Mapping[str, str]:
    """Every public record, alias and protocol, with the page that has it."""
    return {
        name: module
        for module in ("types", "protocols", "plugin")
        for name in _names(importlib.import_module(f"ale.{module}"))
    }


def _told(docstring: str) -> dict[str, str]:
    """What an ``Attributes:`` section says of each field."""
    told: dict[str, str] = {}
    for line in docstring.partition("\nAttributes:\n")[2].splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and name.isidentifier():
            told[name] = text
        elif told:
            told[list(told)[-1]] += f" {line.strip()}"
    return told
