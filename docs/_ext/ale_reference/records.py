"""The public modules: records as tables of their fields, everything else by autodoc."""

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
from ale_reference.markup import indent, list_table, rest

MODULES = (
    "plugin",
    "agents",
    "sandboxes",
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
    "training",
    "job",
    "event",
    "_record",
)
PROTOCOLS = (
    *("task", "sandbox", "llm", "agent", "start", "training", "executor", "launcher"),
    "middleware",
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
    "training": "Training",
    "executor": "Executors",
    "launcher": "Launchers",
    "middleware": "Middleware",
    "job": "Jobs",
    "event": "Events",
    "_record": "Making a record",
}


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


def pages(registry: Registry, root: Path) -> Mapping[str, str]:
    """``parts/types.md``, and one for each of the other public modules."""
    made = {"parts/types.md": _package("types", TYPES)}
    made["parts/protocols.md"] = _package("protocols", PROTOCOLS)
    for name in MODULES:
        module = importlib.import_module(f"ale.{name}")
        text = "".join(document(module.__name__, each) for each in _names(module))
        made[f"parts/{name.replace('.', '-')}.md"] = text
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
    full = f"{module}.{name}"
    if inspect.isclass(value) and attrs.has(value):
        return rest(f".. py:currentmodule:: {module}\n\n" + "".join(_record(name, value)))
    if inspect.isclass(value) and issubclass(value, Exception):
        return rest(f".. autoexception:: {full}\n   :show-inheritance:\n")
    if inspect.isclass(value):
        return rest(f".. autoclass:: {full}\n   :members:\n   :undoc-members:\n")
    if inspect.isroutine(value):
        return rest(f".. autofunction:: {full}\n")
    if typing.get_origin(value) is typing.Literal:
        one_of = ", ".join(f"``{word}``" for word in typing.get_args(value))
        return rest(
            f".. py:currentmodule:: {module}\n\n.. py:data:: {name}\n\n   One of {one_of}.\n"
        )
    if isinstance(value, int):  # autodata would tell what an int is
        return rest(f".. py:currentmodule:: {module}\n\n.. py:data:: {name}\n   :value: {value}\n")
    if isinstance(value, Mapping):  # likewise
        names = ", ".join(f"``{key}``" for key in value)
        return rest(
            f".. py:currentmodule:: {module}\n\n.. py:data:: {name}\n\n   With the keys {names}.\n"
        )
    return rest(f".. autodata:: {full}\n   :no-value:\n")


def _record(name: str, cls: type) -> Iterator[str]:
    yield f".. py:class:: {name}\n\n"
    about = inspect.getdoc(cls) or ""
    if "\nAttributes:" in about:
        # This class tells of its fields in its docstring.
        about = about.partition("\nAttributes:")[0]
    yield indent(plurals(about)) + "\n\n"
    told = _told(inspect.getdoc(cls) or "")
    rows = (
        [
            f"``{field.name}``",
            _type(field.type),
            "required" if field.default is None else f"``{field.default}``",
            plurals(field.doc or told.get(field.name, "")),
        ]
        for field in fields(cls)
    )
    yield indent(list_table(["field", "type", "default", "what it is"], rows, "18 24 16 42"))
    for key, member in vars(cls).items():
        if not key.startswith("_"):
            if inspect.isfunction(member):
                yield f"\n   .. automethod:: {name}.{key}\n"
            elif isinstance(member, property):
                yield f"\n   .. autoproperty:: {name}.{key}\n"


def _type(annotation: str) -> str:
    """A type, as a link to the first record that it names."""
    named = [word for word in re.findall(r"\w+", annotation) if word in _public()]
    return f":py:obj:`{annotation} <{_public()[named[0]]}>`" if named else f"``{annotation}``"


@functools.cache
def _public() -> Mapping[str, str]:
    """Every public record, alias and protocol, with its full name."""
    public = ("types", "protocols", "plugin")
    return {
        name: f"ale.{module}.{name}"
        for module in public
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


def tidy_signature(
    app: Any, what: str, name: str, value: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str | None, Any] | None:
    """Protocols have no constructor worth showing."""
    if what == "class" and getattr(value, "_is_protocol", False):
        return "", None
    return None


def tidy_docstring(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Let a docstring say `Component`s."""
    lines[:] = [plurals(line) for line in lines]


def plurals(text: str) -> str:
    """In reStructuredText a name in backticks must end at a space or at punctuation."""
    return re.sub(r"(?<!`)(`[^`\s]+`)(?=\w)", r"\1\\ ", text)
